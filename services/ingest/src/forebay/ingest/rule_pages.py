"""The page of documentation about rules and policies, made from the registry.

`python -m forebay.ingest.rule_pages` writes services/ingest/RULES.md; with `--check`
it only compares, which `make verify` does.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from forebay.ingest.domain import limits
from forebay.ingest.domain.limits import DEFAULT_LIMITS
from forebay.ingest.domain.policy import FIXED
from forebay.ingest.domain.rules import RULES, RULES_VERSION
from forebay.runtime.terminal import print_line

_HEAD = """# Validation rules

Made by `forebay rules --markdown`; `make generate` writes it, `make verify` compares. Rules version {version}.

- **error**: the episode is rejected. **hold**: it waits for a person. **warning** and **info** are only told.
- A check may tell a slight breach more mildly than the rule's severity; the finding says which.
- *Fixed* rules can be neither lowered nor waived: what breaks them cannot become rows of a version.

| rule | severity | fixed | question | why | what to do |
|---|---|---|---|---|---|
"""
_POLICY = """
## Policies

`forebay validate PATH --policy policy.yaml`; for uploads the service reads `<home>/policies/<project>.yaml`.
Unknown rules and keys are errors.

```yaml
rules:
  LR-VIDEO-004: error                       # raise or lower: error, hold, warning, info
  LR-VIDEO-008:                             # ignore, with a reason; episodes are source indices, default all
    waive: true
    reason: the top camera is a still picture in this simulation
    episodes: [3, 4]
limits:
  lenient_frames: 2
on_bad_episode: drop                        # or reject_dataset
min_accepted_share: 0.8                     # else the version is made without train-ready
```

`drop`: the bad episodes stay where they are and the outcome is `partial` when good ones are left.
`reject_dataset`: one rejected episode rejects all. Without the key the outcome is `reject` and each episode keeps its own.

| limit | default | what it is |
|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    lines = [
        f"| {rule.id} | {rule.severity} | {'fixed' if rule.id in FIXED else ''} | {rule.question} | {rule.why} | {rule.fix} |"
        for rule in RULES.values()
    ]
    told = _limit_texts()
    numbers = [f"| `{f.name}` | {getattr(DEFAULT_LIMITS, f.name):g} | {told[f.name]} |" for f in fields(DEFAULT_LIMITS)]
    return _HEAD.format(version=RULES_VERSION) + "\n".join(lines) + "\n" + _POLICY + "\n".join(numbers) + "\n"


def _limit_texts() -> dict[str, str]:
    """The sentence under each field of `Limits`."""
    body = next(
        node
        for node in ast.parse(inspect.getsource(limits)).body
        if isinstance(node, ast.ClassDef) and node.name == "Limits"
    ).body
    found: dict[str, str] = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=sentence)):
                found[name] = str(sentence)
            case _:
                pass
    return found


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is right."""
    names = [argument for argument in arguments if not argument.startswith("-")]
    path = Path(names[0]) if names else Path("services/ingest/RULES.md")
    if "--check" not in arguments:
        path.write_text(markdown(), encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == markdown():
        return 0
    print_line(f"{path} differs from the rules; run: make generate", stderr=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

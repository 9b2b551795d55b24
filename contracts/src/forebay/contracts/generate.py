"""Writes every checked-in file that follows from the table of events: `python -m forebay.contracts.generate [--check]`.

JSON schemas, AsyncAPI 3, permissions, streams and durables, the table for people.
The only module of this package that touches files; nothing imports it.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

from forebay.contracts.asyncapi import asyncapi
from forebay.contracts.catalogue import EVENTS, EventSpec
from forebay.contracts.codec import SCHEMA_ROOT
from forebay.contracts.job_file import job_file_schema
from forebay.contracts.parts import PROJECT_PARTS
from forebay.contracts.permissions import JOB_PLACEHOLDER, PROJECT_PLACEHOLDER, attempts_of, permissions
from forebay.contracts.reasons import SENTENCES
from forebay.contracts.streams import consumers, streams
from forebay.contracts.subjects import EVENT_ROOT

ROOT = Path(__file__).parents[3]
"""The `contracts` folder of the work tree."""
_SHOWN_LINES = 20


def files() -> dict[str, str]:
    """Path below `contracts/` -> content."""
    made = {f"schemas/{spec.name}.v{spec.body.version}.json": _json(schema(spec)) for spec in EVENTS}
    made["schemas/JobFile.v1.json"] = _json(job_file_schema())
    made["asyncapi.json"] = _json(asyncapi())
    made["permissions.json"] = _json(_permissions())
    made["streams.json"] = _json(_streams())
    made["EVENTS.md"] = _table()
    return made


def schema(spec: EventSpec) -> dict[str, Any]:
    """The JSON schema of one event's body, at the address that `ce-dataschema` names."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMA_ROOT}/{spec.name}.v{spec.body.version}.json",
        **spec.body.model_json_schema(),
    }


def differences(root: Path = ROOT) -> dict[str, list[str]]:
    """Files whose content is not what the table says, with the lines that differ."""
    found: dict[str, list[str]] = {}
    for name, wanted in files().items():
        path = root / name
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if there != wanted:
            lines = difflib.unified_diff(
                there.splitlines(), wanted.splitlines(), f"{name} (checked in)", name, lineterm=""
            )
            found[name] = list(lines)
    return found


def write(root: Path = ROOT) -> list[str]:
    """Bring every file up to date; returns those that changed."""
    changed = sorted(differences(root))
    made = files()
    for name in changed:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[name], encoding="utf-8")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a file is not up to date")
    if not parser.parse_args().check:
        for name in write():
            sys.stdout.write(f"wrote contracts/{name}\n")
        return 0
    found = differences()
    for name, lines in found.items():
        sys.stdout.write(
            "\n".join([f"contracts/{name} is not up to date; run: make generate", *lines[:_SHOWN_LINES], ""])
        )
    return 1 if found else 0


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _permissions() -> dict[str, Any]:
    return {
        "about": "Generated from the table of events. <project> stands for the one project of a collector or agent, <job> for the one job of a pod.",
        "identities": [
            {
                "identity": item.identity,
                "inbox": item.inbox,
                "publish": list(item.publish),
                "subscribe": list(item.subscribe),
                "answers": list(item.answers),
            }
            for item in (
                *permissions((PROJECT_PLACEHOLDER,)),
                attempts_of(PROJECT_PLACEHOLDER, JOB_PLACEHOLDER),
            )
        ],
    }


def _streams() -> dict[str, Any]:
    return {
        "about": "Generated; durations in nanoseconds, as JetStream's own API takes them. `forebay bus apply` makes these.",
        "streams": [item.config for item in streams()],
        "consumers": [{"stream": item.stream, "config": item.config} for item in consumers()],
    }


def _table() -> str:
    rows = [
        f"| {spec.name} | {', '.join(spec.owners)} | `{_template(spec)}` | {spec.trigger} | {_first_line(spec)} |"
        for spec in EVENTS
    ]
    reasons = [f"| `{reason}` | {sentence} |" for reason, sentence in SENTENCES.items()]
    return "\n".join(
        [
            "# Events and reasons",
            "",
            "Generated from `catalogue.py` and `reasons.py` by `make generate`; do not edit.",
            f"`{'`, `'.join(PROJECT_PARTS)}` speak for one project; every other part for all.",
            "",
            "| event | owner | subject | published when | says |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## Reasons",
            "",
            "| code | sentence |",
            "|---|---|",
            *reasons,
            "",
        ]
    )


def _template(spec: EventSpec) -> str:
    return f"{EVENT_ROOT}.{{project}}.{spec.entity}.{{{spec.key}}}.{spec.token}"


def _first_line(spec: EventSpec) -> str:
    return (spec.body.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())

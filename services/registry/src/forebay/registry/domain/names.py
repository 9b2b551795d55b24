"""From what a person writes to a node: ids, `reach`, `reach@v1`, `reach@production`, `pick@train-ready`, `job/2`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from forebay.contracts.identifiers import version_number
from forebay.registry.domain.graph import get, has_children
from forebay.registry.domain.nodes import (
    CHECKPOINT,
    CONTRADICTION,
    DATASET,
    EPISODE,
    EVALUATION,
    JOB,
    KINDS,
    MODEL,
    UPLOAD,
    Channel,
    Name,
    TagPointer,
    attempt_id,
    dataset_id,
    job_id,
    model_id,
    release_id,
    type_of,
)
from forebay.runtime.errors import Refused
from forebay.runtime.state import State

CHANNELS = ("candidate", "canary", "production", "retired")
_PREFIXES = {"ck-": CHECKPOINT, "ep-": EPISODE, "up-": UPLOAD, "ev-": EVALUATION, "ct-": CONTRADICTION}
_SCAN = 500
_MAX_NAMES = 20_000


def resolve(state: State, project: str, text: str) -> str:
    """The one node that `text` means. Refused when there is none (with close matches) or more than one."""
    found = list(dict.fromkeys(_candidates(state, project, text.strip())))
    if len(found) == 1:
        return found[0]
    if not found:
        raise unknown(state, project, text)
    raise Refused(
        "ambiguous-id",
        f"{text!r} may mean {' or '.join(found)}",
        f"write the whole id, for example {found[0]!r}",
        {"candidates": found},
    )


def unknown(state: State, project: str, text: str, kind: str | None = None) -> Refused:
    """The refusal for something nobody has heard of."""
    close = close_matches(state, project, text, kind)
    hint = (
        f"did you mean {', '.join(close)}?" if close else "`forebay model list` and `forebay jobs` list what there is"
    )
    return Refused("unknown-id", f"nothing in project {project} is called {text!r}", hint, {"close": close})


def known(state: State, project: str, node_id: str) -> bool:
    """Described by an event, or at least named as a parent."""
    return get(state, project, node_id) is not None or has_children(state, project, node_id)


def _candidates(state: State, project: str, text: str) -> Iterator[str]:
    if type_of(text) in KINDS and ":" in text:
        yield from _typed(state, project, *text.split(":", 1))
        return
    prefix = _PREFIXES.get(text[:3])
    if prefix is not None and known(state, project, f"{prefix}:{text}"):
        yield f"{prefix}:{text}"
        return
    if "/" in text:
        job, _, number = text.partition("/")
        if number.isdecimal() and known(state, project, attempt_id(job, int(number))):
            yield attempt_id(job, int(number))
        return
    exact = [found for kind in (MODEL, DATASET) for found in _typed(state, project, kind, text)]
    if known(state, project, job_id(text)):
        exact.append(job_id(text))
    # A job's name without its run is the weakest reading: models are often called like the job that made them.
    yield from exact or _typed(state, project, JOB, text)


def _typed(state: State, project: str, kind: str, local: str) -> Iterator[str]:
    """`dataset:pick@train-ready` → `dataset:pick@v3`; an id that is complete stays as it is."""
    name, at, selector = local.partition("@")
    if kind not in {MODEL, DATASET} or (at and version_number(selector) is not None):
        exact = f"{kind}:{local}"
        if known(state, project, exact):
            yield exact
        elif kind == JOB and (latest := top(state, project, JOB, local)) is not None:
            yield job_id(f"{local}-{latest}")
        return
    number = _selected(state, project, kind, name, selector)
    if isinstance(number, int):
        yield model_id(name, number) if kind == MODEL else dataset_id(name, number)
    elif number is not None:
        yield number


def _selected(state: State, project: str, kind: str, name: str, selector: str) -> int | str | None:
    if not selector:
        return top(state, project, kind, name)
    if kind == DATASET:
        tag = state.get(TagPointer, f"{project}/{name}@{selector}")
        return None if tag is None else tag.number
    channel = state.get(Channel, f"{project}/{name}@{selector}")
    return None if channel is None else release_id(name, selector, channel.move)


def top(state: State, project: str, kind: str, name: str) -> int | None:
    """The highest number known under a name."""
    found = state.get(Name, f"{project}/{kind}/{name}")
    return None if found is None else found.top


def names(state: State, project: str, kind: str | None = None) -> Iterator[Name]:
    """Every name of a project, of one kind only when it is given."""
    prefix = f"{project}/" + (f"{kind}/" if kind else "")
    after = prefix
    for _ in range(0, _MAX_NAMES, _SCAN):
        page = state.all(Name, after=after, limit=_SCAN)
        for name in page:
            if not name.key.startswith(prefix):
                return
            yield name
        if len(page) < _SCAN:
            return
        after = page[-1].key


def close_matches(state: State, project: str, text: str, kind: str | None = None) -> list[str]:
    """Up to three known names that look like `text`."""
    wanted = text.partition(":")[2] or text
    local = wanted.partition("@")[0].partition("/")[0]
    pool: dict[str, None] = {}
    for name in names(state, project, kind):
        pool[name.name] = None
        pool[f"{name.name}-{name.top}" if name.type == JOB else f"{name.name}@v{name.top}"] = None
    found = get_close_matches(wanted, pool, n=3, cutoff=0.5) or get_close_matches(local, pool, n=3, cutoff=0.5)
    return list(found)

"""A job as its owner wrote it, checked: one helpful problem per field, all at once.

Used by the command `submit`. Nothing here looks at state; whether names exist and
whether the request fits is judged by `commands.py`.
"""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import ID_PATTERN, content_digest, parse_logical_name
from forebay.contracts.masking import HOW_TO_NAME_IT, mask, secrets_in
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain.job_file import Problem, with_numbers
from forebay.scheduler_bridge.domain.pod_overlay import OUR_VARIABLE, VARIABLE

MAX_SPEC_BYTES = 32 * 1024
"""An event carries 64 KiB; the rest is for its envelope and what is added later."""
MAX_NAME = 56
"""Leaves room for the run and the attempt in an id of 63 characters."""

DATA_WORD = re.compile(r"\{data:([^{}\s]*)\}")


def parse_spec(data: Any, *, project: str) -> JobSpec | tuple[Problem, ...]:
    """The job, or every problem with it, none of which repeats a secret. A missing project is the project that asks."""
    secrets, found = tuple(secret_problems(data)), _parsed(data, project)
    if isinstance(found, JobSpec):
        return secrets or found
    return (*secrets, *(Problem(field=mask(item.field), message=mask(item.message)) for item in found))


def secret_problems(data: Any, where: str = "") -> Iterator[Problem]:
    """Secrets that are written out, each by its place."""
    for field, what in secrets_in(data, where):
        yield Problem(field=mask(field) or "spec", message=f"{what}: {HOW_TO_NAME_IT}")


def _parsed(data: Any, project: str) -> JobSpec | tuple[Problem, ...]:
    if not isinstance(data, Mapping):
        return (Problem(field="spec", message="a job is a mapping: name, command, datasets, resources, …"),)
    values, problems_found = with_numbers({**data, "project": data.get("project") or project})
    problems = [*problems_found, *_unknown_fields(JobSpec, values, "")]
    try:
        spec = JobSpec.model_validate(values)
    except ValidationError as error:
        problems += [_problem(item, values) for item in error.errors(include_url=False)]
        return tuple(problems)
    problems += _checks(spec, project)
    return tuple(problems) or spec


def spec_digest(spec: JobSpec) -> str:
    """What makes two submissions the same job. Whether to wait for a dataset is not part of it."""
    return content_digest(spec.model_dump(mode="json", exclude_none=True, exclude={"wait_for_dataset"}))


def words_of(spec: JobSpec) -> tuple[str, ...]:
    """The command with its arguments, as the owner wrote them."""
    return (*spec.command, *(spec.args or ()))


def datasets_by_name(spec: JobSpec) -> dict[str, str]:
    """What `{data:…}` may name -> the name of the dataset: as it was written without its tag, and its slug."""
    found: dict[str, str] = {}
    for item in spec.datasets:
        name = parse_logical_name(item.name, kind="dataset").name
        written = item.name.removeprefix("dataset:").partition("@")[0]
        found |= {name: name, written: name}
    return found


def placed_words(spec: JobSpec, place: Callable[[str], str]) -> tuple[str, ...]:
    """The command with `{data:NAME}` replaced by the dataset's folder; other braces stay as they are."""
    names = datasets_by_name(spec)
    return tuple(
        DATA_WORD.sub(lambda found: place(names[found[1]]) if found[1] in names else found[0], word)
        for word in words_of(spec)
    )


def parameter_variable(name: str) -> str:
    """`learning-rate` -> `FOREBAY_PARAM_LEARNING_RATE`."""
    return "FOREBAY_PARAM_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _checks(spec: JobSpec, project: str) -> Iterator[Problem]:
    if spec.project != project:
        message = f"{spec.project!r} is not the project this was submitted to ({project!r}); leave it out or correct it"
        yield Problem(field="project", message=message)
    if len(spec.name) > MAX_NAME:
        yield Problem(field="name", message=f"{len(spec.name)} characters; at most {MAX_NAME}, the run is added to it")
    size = len(json.dumps(spec.model_dump(mode="json")).encode())
    if size > MAX_SPEC_BYTES:
        message = f"{size} bytes; at most {MAX_SPEC_BYTES}. Put long lists into a file that the command reads"
        yield Problem(field="spec", message=message)
    if any("\x00" in word for word in words_of(spec)) or not spec.command[0].strip():
        yield Problem(field="command", message="the first word must name a program, and no word may hold a NUL byte")
    yield from _data_words(spec)
    if spec.working_directory is not None and not spec.working_directory.startswith("/"):
        message = f"{spec.working_directory!r} is not absolute, and the bridge runs elsewhere; write the whole path"
        yield Problem(field="working_directory", message=message)
    yield from _inputs(spec)
    yield from _environment(spec)
    yield from _parameters(spec)


def _data_words(spec: JobSpec) -> Iterator[Problem]:
    """`{data:NAME}` names a dataset of this job."""
    named = {name for word in words_of(spec) for name in DATA_WORD.findall(word)}
    if not named:
        return
    try:
        known = datasets_by_name(spec)
    except InvalidNameError:
        return  # told where it is written
    for name in sorted(named - set(known)):
        close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        hint = f"did you mean {{data:{close[0]}}}?" if close else "list it under datasets"
        yield Problem(field="command", message=f"{{data:{name}}} names no dataset of this job; {hint}")


def _inputs(spec: JobSpec) -> Iterator[Problem]:
    named = [("datasets", "dataset", item.name) for item in spec.datasets]
    named += [("models", "model", item.name) for item in spec.models]
    counts: dict[str, int] = {}
    listed: set[str] = set()
    for field, kind, text in named:
        index = counts[field] = counts.get(field, -1) + 1
        where = f"{field}[{index}].name"
        try:
            logical = parse_logical_name(text, kind=kind)
        except InvalidNameError as error:
            yield Problem(field=where, message=str(error))
            continue
        if logical.kind != kind:
            yield Problem(field=where, message=f"{text!r} names a {logical.kind}; list it under {logical.kind}s")
        if str(logical) in listed:
            yield Problem(field=where, message=f"{text!r} is listed twice; list it once, with all its columns")
        listed.add(str(logical))
        if logical.version == 0:
            yield Problem(field=where, message=f"{text!r}: versions start at v1")
    for index, item in enumerate(spec.datasets):
        if item.episodes is not None and not 0 <= item.episodes[0] < item.episodes[1]:
            first, last = item.episodes
            message = f"[{first}, {last}) holds no episode; write [first, last) with 0 <= first < last"
            yield Problem(field=f"datasets[{index}].episodes", message=message)


def _environment(spec: JobSpec) -> Iterator[Problem]:
    for key, value in spec.environment.items():
        where = f"environment.{key}"
        if not VARIABLE.fullmatch(key):
            yield Problem(field=where, message="not a variable name: use letters, digits and '_'")
        elif OUR_VARIABLE.fullmatch(key):
            yield Problem(field=where, message="set by Forebay for each attempt; leave it out")
        elif "\x00" in value:
            yield Problem(field=where, message="the value holds a NUL byte")


def _parameters(spec: JobSpec) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name in spec.parameters:
        variable = parameter_variable(name)
        if not re.search(r"[A-Za-z0-9]", name):
            yield Problem(field=f"parameters.{name}", message="a name needs a letter or digit")
        elif variable in seen:
            message = f"becomes {variable}, like {seen[variable]!r}; rename one of them"
            yield Problem(field=f"parameters.{name}", message=message)
        seen.setdefault(variable, name)


def _unknown_fields(model: type[BaseModel], values: Mapping[str, Any], prefix: str) -> Iterator[Problem]:
    """A field that nobody reads is a typing error: say which one was meant."""
    for key, value in values.items():
        where = f"{prefix}{key}"
        if key not in model.model_fields:
            close = difflib.get_close_matches(str(key), list(model.model_fields), n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(model.model_fields)}"
            yield Problem(field=where, message=f"no such field; {hint}")
            continue
        inner = _model_of(model.model_fields[key].annotation)
        if inner is None:
            continue
        if isinstance(value, Mapping):
            yield from _unknown_fields(inner, value, f"{where}.")
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _unknown_fields(inner, item, f"{where}[{index}].")


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside `Model` or `tuple[Model, ...]`."""
    for found in (annotation, *typing.get_args(annotation)):
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


_HINTS: dict[str, str] = {
    "name": f"write 1 to {MAX_NAME} lower-case letters, digits and '-'",
    "command": "write a list of words: [python, train.py]",
    "datasets": "write a list: [{name: 'pick-place@train-ready'}]",
    "models": "write a list: [{name: 'base-policy@v1'}]",
    "resources": "write {cpu: 2, memory: 4Gi, gpus: 0}",
    "args": "write a list of words: ['--dataset.root={data:pick-place}']",
    "mounts": "write one text: 'team(pvc):/work, 8G(memory):/scratch'",
    "checkpoints": "write {folder: /forebay/output/train/checkpoints, save_every_steps: 1000}",
    "loader": "write {workers: 8, batch_size: 32, sample_bytes: 2Mi}",
    "pod": "write fields of a Kubernetes pod: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}",
    "environment": "write words and texts: {OMP_NUM_THREADS: '1'}",
    "parameters": "write names and plain values: {seed: 7}",
    "restart": "write {max_attempts: 3, forbid_cold_start: true}",
}


def _problem(item: Any, values: Mapping[str, Any]) -> Problem:
    """One error of the model in words, with the value that was found and an example."""
    where = ""
    for part in item["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    head = str(item["loc"][0]) if item["loc"] else "spec"
    if item["type"] == "missing":
        return Problem(field=where, message=f"missing; {_HINTS.get(head, 'it is required')}")
    message = item["msg"].removeprefix("Value error, ")
    if ID_PATTERN in message:
        message = "use lower-case letters, digits and '-', beginning and ending with a letter or digit"
    found = item.get("input")
    shown = "" if found is values or isinstance(found, Mapping) or head == "environment" else f", found {found!r:.60}"
    hint = f"; {_HINTS[head]}" if head in _HINTS else ""
    return Problem(field=where or "spec", message=f"{message}{shown}{hint}")

"""`model-evaluate`: metrics of exactly one artefact, with where they come from."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pydantic import ValidationError

from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.contracts.v1.models import EvaluationEvidence, EvaluationRecorded
from forebay.registry.commands.model_versions import job_in
from forebay.registry.domain.contradictions import TERMINAL
from forebay.registry.domain.evidence import evidence_words, is_typed
from forebay.registry.domain.graph import get
from forebay.registry.domain.nodes import EVALUATION, Fact, Node, job_id, name_and_number
from forebay.registry.domain.view import facts_named, shown
from forebay.registry.questions.models import version_of
from forebay.registry.questions.request_args import invalid, optional_number, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State

_MAX_METRICS = 200
_NOW = datetime(1970, 1, 1, tzinfo=UTC)
"""Of a node that is only put into words."""


def model_evaluate(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 a command's signature
    """Args {model, number?, metrics, source, artefact_sha256?}."""
    project = request.project
    node_id = version_of(state, project, text(request, "model"), optional_number(request, "number"))
    name, number = name_and_number(node_id)
    model: Node | None = get(state, project, node_id)
    artefact = shown(model, "artefact_sha256")
    said = optional_text(request, "artefact_sha256")
    if said is not None and said != artefact:
        raise Refused(
            "digest-mismatch",
            f"the metrics are of artefact {said[:12]}…, but {name}@v{number} is {artefact[:12]}…",
            "evaluate the artefact that is registered, or register the one that was evaluated",
            {"expected": artefact, "found": said},
        )
    metrics = _metrics(request)
    source = text(request, "source")
    evidence = _evidence(state, request, node_id, frozenset(metrics))
    values = canonical_json([metrics, evidence.model_dump(mode="json", exclude_none=True)]).decode()
    evaluation = "ev-" + stable_id(project, name, number, artefact, values, source)[:24]
    body = EvaluationRecorded(
        evaluation=evaluation,
        model=name,
        number=number,
        artefact_sha256=artefact,
        metrics=metrics,
        source=source,
        evidence=evidence,
        by=request.by,
    )
    result = {
        "id": f"evaluation:{evaluation}",
        "evaluation": evaluation,
        "model": name,
        "number": number,
        "artefact_sha256": artefact,
        "metrics": metrics,
        "evidence": evidence_words(said_of := _node(project, evaluation, body)),
        "typed": is_typed(said_of),
    }
    return Outcome(result=result, actions=(Emit(project=project, body=body, dedupe=(evaluation,)),))


def _node(project: str, evaluation: str, body: EvaluationRecorded) -> Node:
    """The evaluation as lineage will show it."""
    values = {"evidence": body.to_json().get("evidence")}
    fact = Fact(event="", name=body.event, time=_NOW, values=values)
    return Node(project=project, id=f"{EVALUATION}:{evaluation}", facts=(fact,))


def _evidence(state: State, request: Request, model: str, metrics: frozenset[str]) -> EvaluationEvidence:
    """What the request says of its numbers' source, as far as the log agrees."""
    given = request.args.get("evidence") or {"kind": "typed"}
    try:
        said = EvaluationEvidence.model_validate(given)
    except ValidationError as error:
        raise invalid("evidence", error) from None
    if said.kind == "typed":
        return EvaluationEvidence(kind="typed")
    if said.file is None or said.sha256 is None:
        raise Refused("bad-request", "evidence from a file needs 'file' and 'sha256'")
    typed = tuple(sorted({*said.typed} & metrics))
    if said.kind == "file":
        return EvaluationEvidence(kind="file", file=said.file, sha256=said.sha256, typed=typed)
    job = job_in(state, request.project, said.job or "")
    _refuse_job(state, request.project, job, model, said.file)
    return EvaluationEvidence(kind="job", file=said.file, sha256=said.sha256, job=job, typed=typed)


def _refuse_job(state: State, project: str, job: str, model: str, file: str) -> None:
    """A job is a source only when it has succeeded, read this version where it names models, and the file is its own."""
    node = get(state, project, job_id(job))
    if not facts_named(node, "JobSucceeded"):
        ended = "has not ended" if not facts_named(node, *TERMINAL) else "did not succeed"
        raise Refused(
            "job-not-succeeded", f"job {job} {ended}, so its numbers are no evidence", f"see: forebay why {job}"
        )
    read = [one["pinned"] for one in shown(node, "inputs", []) if one["kind"] == "model"]
    if read and model not in read:
        raise Refused("other-model", f"job {job} read {', '.join(read)}, not {model}", "name the job that evaluated it")
    folders = PurePosixPath(file).parts
    if (project, job) not in set(itertools.pairwise(folders)):
        raise Refused(
            "not-of-this-job",
            f"{file} does not lie in the folder of job {job}",
            "name a file that the job wrote, or record it without the job",
        )


def _metrics(request: Request) -> dict[str, float]:
    given = request.args.get("metrics")
    if not isinstance(given, dict) or not given or len(given) > _MAX_METRICS:
        raise Refused("bad-request", f"'metrics' must be an object with 1 to {_MAX_METRICS} numbers")
    found: dict[str, float] = {}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused(
                "bad-metric", f"metric {name!r} is {value!r}, not a finite number", "correct the metrics file"
            )
        found[str(name)[:200]] = float(value)
    return found

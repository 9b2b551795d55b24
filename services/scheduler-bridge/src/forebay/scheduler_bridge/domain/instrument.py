"""A plain Job of `kubectl apply` gets what `forebay submit` puts in: gate, checks, agent, shim. Pure.

For the mutating webhook: only Jobs annotated with `forebay.dev/dataset` are touched, and
one that was touched before is left as it is. The answer is a JSON patch.
"""

from __future__ import annotations

import copy
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import canonical_json, parse_logical_name
from forebay.contracts.quantities import QuantityError, parse_bytes, parse_cpu
from forebay.contracts.v1.jobs import DatasetInput, JobSpec, Resources, RestartPolicy
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.json_patch import json_patch
from forebay.scheduler_bridge.domain.lerobot import lerobot_run
from forebay.scheduler_bridge.domain.manifest import Site, Submission, checkpoint_folder, inputs_of, pod_annotations
from forebay.scheduler_bridge.domain.mounts import SHM
from forebay.scheduler_bridge.domain.pod_parts import (
    Attended,
    failure_policy,
    our_volumes,
    prepare_container,
    run_mount,
    watch_container,
    wrapped,
)
from forebay.scheduler_bridge.domain.pod_volumes import Storage, storage_of
from forebay.scheduler_bridge.domain.specification import placed_words

Json = dict[str, Any]
COLD_START = f"{layout.DOMAIN}/allow-cold-start"
_WORDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrumented:
    """The patch, and what could not be done; an empty patch leaves the Job alone."""

    patch: list[Json]
    warnings: tuple[str, ...] = ()
    submission: Submission | None = None
    """The job as Forebay understands it, for the record."""


class NotInstrumentableError(ValueError):
    """The annotation cannot be understood; the Job must not start as if it had said nothing."""


def is_wanted(job: Mapping[str, Any]) -> bool:
    """Whether the Job asks for it, and has not got it yet."""
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    return layout.DATASET_ANNOTATION in annotations and layout.INSTRUMENTED not in annotations


def instrument(job: Mapping[str, Any], *, user: str, site: Site) -> Instrumented:
    """The patch that adds gate and agent to an annotated Job. Raises `NotInstrumentableError`."""
    if not is_wanted(job):
        return Instrumented(patch=[])
    after: Json = copy.deepcopy(dict(job))
    submission = _submission(after, user, site)
    pod = after["spec"]["template"]["spec"]
    warnings = [*_policies(after, site)]
    storage = storage_of(
        inputs_of(submission.spec), job=submission.job, project=site.project, shm_bytes=None, mounts=()
    )
    shm = [item for item in pod["containers"][0].get("volumeMounts") or [] if item.get("mountPath") == SHM]
    storage = Storage(volumes=storage.volumes, train=storage.train, ours=(*storage.ours, *shm), pins=storage.pins)
    warnings += _wrap(pod, submission, storage)
    attended = _attended(submission, site)
    ours = [prepare_container(site.agent, attended, storage), watch_container(site.agent, attended, storage)]
    pod["initContainers"] = [*ours, *(pod.get("initContainers") or [])]
    pod["volumes"] = [*(pod.get("volumes") or []), *our_volumes(), *storage.volumes]
    _label(after, submission, site)
    return Instrumented(patch=json_patch(job, after), warnings=tuple(warnings), submission=submission)


def _submission(job: Json, user: str, site: Site) -> Submission:
    """What the annotated Job says, in the words of a job file."""
    metadata = job["metadata"]
    name = str(metadata.get("name") or metadata.get("generateName") or "").rstrip("-")
    containers = job["spec"]["template"]["spec"].get("containers") or []
    if not name or not containers:
        msg = "the Job has no name or no container"
        raise NotInstrumentableError(msg)
    main = containers[0]
    asked = str(metadata["annotations"][layout.DATASET_ANNOTATION])
    names = [text.strip() for text in asked.split(",") if text.strip()]
    try:
        for text in names:
            if (found := parse_logical_name(text, kind="dataset")).kind != "dataset":
                msg = f"{text!r} names a {found.kind}"
                raise InvalidNameError(msg)  # noqa: TRY301 one sentence for whatever is wrong with it
        spec = JobSpec(
            name=name[:56].rstrip("-"),
            project=site.project.project,
            command=tuple(str(word) for word in [*(main.get("command") or ()), *(main.get("args") or ())][:_WORDS])
            or ("image-entrypoint",),
            datasets=tuple(DatasetInput(name=text) for text in names),
            resources=_resources(main, site),
            restart=RestartPolicy(
                max_attempts=min(100, int(job["spec"].get("backoffLimit", 6)) + 1),
                allow_cold_start=metadata["annotations"].get(COLD_START) == "true",
            ),
            image=main.get("image"),
            nodes=job["spec"].get("completions") if job["spec"].get("completionMode") == "Indexed" else None,
        )
    except (InvalidNameError, ValueError) as error:
        msg = f"{layout.DATASET_ANNOTATION}: {asked!r} cannot be used: {error}"
        raise NotInstrumentableError(msg) from error
    if not names:
        msg = f"{layout.DATASET_ANNOTATION} names no dataset; write for example pick-place@train-ready"
        raise NotInstrumentableError(msg)
    return Submission(spec=spec, job=layout.object_name(spec.name), run=1, user=user)


def _resources(container: Mapping[str, Any], site: Site) -> Resources:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    try:
        return Resources(
            cpu=parse_cpu(str(asked.get("cpu", "1"))) or 1,
            memory_bytes=parse_bytes(str(asked.get("memory", "1Gi"))),
            gpus=int(asked.get(site.project.gpu_resource, 0)),
        )
    except QuantityError:
        return Resources()


def _policies(job: Json, site: Site) -> list[str]:
    """Suspended behind the gate; infrastructure costs no attempt. What the owner wrote stands where it can."""
    spec, warnings = job["spec"], []
    spec["suspend"] = True
    pod = spec["template"]["spec"]
    if pod.get("restartPolicy") == "Never":
        spec.setdefault("podFailurePolicy", failure_policy())
        spec.setdefault("podReplacementPolicy", "Failed")
    else:
        warnings.append("restartPolicy is not Never: failed checks are repeated instead of failing the Job at once")
    there = {item.get("key") for item in pod.get("tolerations") or []}
    patience = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": site.project.node_lost_seconds}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in there
    ]
    if patience:
        pod["tolerations"] = [*(pod.get("tolerations") or []), *patience]
    return warnings


def _wrap(pod: Json, submission: Submission, storage: Storage) -> list[str]:
    """The first container is the one that trains; the others stay as they are."""
    main = pod["containers"][0]
    taken = {item.get("mountPath") for item in main.get("volumeMounts") or []}
    mounts = [item for item in (run_mount(), *storage.train) if item["mountPath"] not in taken]
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), *mounts]
    plain = {
        "FOREBAY_PROJECT": submission.spec.project,
        "FOREBAY_JOB": submission.job,
        "FOREBAY_RUN_DIR": layout.RUN_DIR,
        "FOREBAY_OUTPUT": layout.OUTPUT_DIR,
        "FOREBAY_CHECKPOINTS": checkpoint_folder(submission.spec),
        "FOREBAY_DATA": layout.DATA_DIR,
    }
    run = lerobot_run(submission.spec.command)
    if run is not None:
        plain["FOREBAY_LEROBOT_WORDS"] = str(run.resume_words)
    variables = [{"name": name, "value": value} for name, value in plain.items()]
    main["env"] = [*storage.pins, *variables, *(main.get("env") or [])]
    if not main.get("command"):
        message = "the container names no command, so its image's own runs as it is and is not told where to resume"
        return [f"{message}; write `command` to have that"]
    words = placed_words(submission.spec, lambda name: f"{layout.DATA_DIR}/{name}")
    main["command"], main["args"] = wrapped(words)
    return []


def _attended(submission: Submission, site: Site) -> Attended:
    spec = submission.spec
    return Attended(
        project=spec.project,
        job=submission.job,
        name=submission.name,
        checkpoints=checkpoint_folder(spec),
        gpus=spec.resources.gpus,
        gpu_resource=site.project.gpu_resource,
        lerobot=lerobot_run(spec.command) is not None,
    )


def _label(job: Json, submission: Submission, site: Site) -> None:
    metadata, template = job["metadata"], job["spec"]["template"]
    labels = {layout.PROJECT_LABEL: submission.spec.project, layout.JOB_LABEL: submission.job}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    annotations = {layout.INSTRUMENTED: "true", layout.OWNER: submission.user}
    if site.kueue:
        metadata["labels"].setdefault(layout.KUEUE_QUEUE, site.project.queues[0])
        gates = [gate for gate in (metadata["annotations"].get(layout.KUEUE_GATED_BY) or "").split(",") if gate]
        annotations[layout.KUEUE_GATED_BY] = ",".join(dict.fromkeys([*gates, layout.GATE]))
    metadata["annotations"] = {**metadata["annotations"], **annotations}
    inner = template.setdefault("metadata", {})
    inner["labels"] = {**(inner.get("labels") or {}), **labels}
    inner["annotations"] = {**(inner.get("annotations") or {}), **pod_annotations(submission, (), site)}


def admission_response(uid: str, found: Instrumented | None, *, problem: str | None = None) -> Json:
    """The `AdmissionReview` to answer with. A problem refuses the Job with its sentence."""
    response: Json = {"uid": uid, "allowed": problem is None}
    if problem is not None:
        response["status"] = {"code": 422, "message": problem}
    elif found is not None and found.patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(canonical_json(found.patch)).decode("ascii")}
    if found is not None and found.warnings:
        response["warnings"] = [warning[:256] for warning in found.warnings]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

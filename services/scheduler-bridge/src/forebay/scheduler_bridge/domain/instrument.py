"""A plain Job of `kubectl apply` gets what `forebay submit` puts in: gate, checks, agent, shim. Pure.

For the mutating webhook (`admission.py`): only Jobs annotated with `forebay.dev/dataset`
are touched, and one that was touched before is left as it is. The answer is a JSON patch.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.applied import (
    NotInstrumentableError,
    described,
    is_instrumented,
    main_of,
    mounted_at,
)
from forebay.scheduler_bridge.domain.cluster.moves import GateKind
from forebay.scheduler_bridge.domain.gate import gates_of
from forebay.scheduler_bridge.domain.json_patch import json_patch
from forebay.scheduler_bridge.domain.lerobot import lerobot_run
from forebay.scheduler_bridge.domain.manifest import Site, Submission, checkpoint_folder, inputs_of, pod_annotations
from forebay.scheduler_bridge.domain.mounts import SHM, is_below
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrumented:
    """The patch, and what could not be done; an empty patch leaves the Job alone."""

    patch: list[Json]
    warnings: tuple[str, ...] = ()


def is_wanted(job: Mapping[str, Any]) -> bool:
    """Whether the Job asks for it, and has not got it yet."""
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    return layout.DATASET_ANNOTATION in annotations and not is_instrumented(job)


def instrument(
    job: Mapping[str, Any], *, user: str, site: Site, mark: str, gate: GateKind = "annotation"
) -> Instrumented:
    """The patch that adds gate and agent to an annotated Job. Raises `NotInstrumentableError`.

    `mark` is what tells this Job from others of the same name; `gate` is what the cluster honours.
    """
    if not is_wanted(job):
        return Instrumented(patch=[])
    after: Json = copy.deepcopy(dict(job))
    submission = described(after, user=user, site=site, mark=mark)
    pod = after["spec"]["template"]["spec"]
    warnings = [*_policies(after, site)]
    storage = _storage(submission, main_of(after), site)
    warnings += _wrap(main_of(after), submission, storage)
    attended = _attended(submission, site)
    ours = [prepare_container(site.agent, attended, storage), watch_container(site.agent, attended, storage)]
    pod["initContainers"] = [*ours, *(pod.get("initContainers") or [])]
    pod["volumes"] = [*(pod.get("volumes") or []), *our_volumes(), *storage.volumes]
    _label(after, submission, site, gate if site.kueue else "suspend")
    return Instrumented(patch=json_patch(job, after), warnings=tuple(warnings))


def kept(job: Mapping[str, Any], before: Mapping[str, Any], *, site: Site) -> list[Json]:
    """The patch that leaves an instrumented Job as it is when the file it was made from is applied again.

    The file's own command would take the place of the shim, and a Job's pods cannot be changed.
    """
    if not is_instrumented(before):
        return []
    after: Json = copy.deepcopy(dict(job))
    main, old = main_of(after), main_of(before)
    if _is_of(after, old, site):
        main["command"], main["args"] = old["command"], old["args"]
    pod, pod_before = after["spec"]["template"]["spec"], before["spec"]["template"]["spec"]
    if [*(pod.get("tolerations") or []), *_patience(pod, site)] == pod_before.get("tolerations"):
        pod["tolerations"] = pod_before["tolerations"]
    return json_patch(job, after)


def _is_of(job: Json, old: Json, site: Site) -> bool:
    """The owner's command in `job` is the one that the shim in `old` runs."""
    bare = copy.deepcopy(job)
    if main_of(bare).get("args") == old.get("args"):
        main_of(bare).pop("args", None)  # a file that names no arguments leaves those that stand there
    try:
        spec = described(bare, user="", site=site, mark="").spec
    except NotInstrumentableError:
        return False  # another file: the API server says itself what cannot be changed
    return wrapped(placed_words(spec, _folder)) == (old.get("command"), old.get("args"))


def _folder(name: str) -> str:
    return f"{layout.DATA_DIR}/{name}"


def _storage(submission: Submission, main: Json, site: Site) -> Storage:
    """What our containers mount: also the Job's own volumes that hold checkpoints or are shared memory."""
    storage = storage_of(
        inputs_of(submission.spec), job=submission.job, project=site.project, shm_bytes=None, mounts=()
    )
    folder = checkpoint_folder(submission.spec)
    shared = [
        item
        for item in main.get("volumeMounts") or []
        if item.get("mountPath") == SHM or is_below(folder, str(item.get("mountPath")))
    ]
    taken = {item["mountPath"] for item in shared}
    ours = (*(item for item in storage.ours if item["mountPath"] not in taken), *shared)
    return Storage(volumes=storage.volumes, train=storage.train, ours=ours, pins=storage.pins)


def _policies(job: Json, site: Site) -> list[str]:
    """Suspended behind the gate; infrastructure costs no attempt. What the owner wrote stands where it can."""
    spec, warnings = job["spec"], []
    if spec.get("suspend"):
        warnings.append("suspend: true is the gate's now: the Job starts when its data is ready and its quota is there")
    spec["suspend"] = True
    pod = spec["template"]["spec"]
    if pod.get("restartPolicy") == "Never":
        if not spec.get("podFailurePolicy"):
            spec["podFailurePolicy"] = failure_policy()
            spec["podReplacementPolicy"] = "Failed"  # the only one that goes with it; another stands there by default
    else:
        warnings.append("restartPolicy is not Never: failed checks are repeated instead of failing the Job at once")
    if (spec.get("parallelism") or 1) > 1:
        warnings.append(
            "several pods at once: each is checked for itself, and none is ended when another fails; a gang that trains"
            " together is `nodes: N` of forebay submit"
        )
    if patience := _patience(pod, site):
        pod["tolerations"] = [*(pod.get("tolerations") or []), *patience]
    return warnings


def _patience(pod: Json, site: Site) -> list[Json]:
    there = {str(item.get("key")) for item in pod.get("tolerations") or []}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": site.project.node_lost_seconds}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in there
    ]


def _wrap(main: Json, submission: Submission, storage: Storage) -> list[str]:
    """The first container is the one that trains; the others stay as they are."""
    taken = mounted_at(main)
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
    main["command"], main["args"] = wrapped(placed_words(submission.spec, _folder))
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


def _label(job: Json, submission: Submission, site: Site, gate: GateKind) -> None:
    metadata, template = job["metadata"], job["spec"]["template"]
    labels = {layout.PROJECT_LABEL: submission.spec.project, layout.JOB_LABEL: submission.job}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    annotations = {layout.INSTRUMENTED: "true", layout.OWNER: submission.user}
    queue = metadata["labels"].get(layout.KUEUE_QUEUE) or (site.project.queues[0] if site.kueue else "")
    if gate == "annotation":
        metadata["labels"][layout.KUEUE_QUEUE] = queue
        gates = gates_of(metadata)
        annotations[layout.KUEUE_GATED_BY] = ",".join(dict.fromkeys([*gates, layout.GATE]))
    else:
        metadata["labels"].pop(layout.KUEUE_QUEUE, None)
        if gate == "label":
            annotations[layout.WAITING_QUEUE] = queue
    metadata["annotations"] = {**metadata["annotations"], **annotations}
    inner = template["metadata"] = dict(template.get("metadata") or {})
    inner["labels"] = {**(inner.get("labels") or {}), **labels}
    inner["annotations"] = {**(inner.get("annotations") or {}), **pod_annotations(submission, (), site)}

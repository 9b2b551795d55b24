"""A job becomes Kubernetes objects: one suspended Job behind its gate, and a headless Service for a gang. Pure.

Called at submit (`forebay submit --render` shows the same) and by the Kubernetes
backend. `cluster_review.py` says before what cannot be rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.contracts.identifiers import canonical_json, content_digest, parse_logical_name
from forebay.contracts.quantities import show_bytes_quantity, show_cpu_quantity
from forebay.contracts.v1.datasets import PinnedInput
from forebay.contracts.v1.jobs import JobSpec
from forebay.contracts.v1.models import Compatibility
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.continuing import job_continued
from forebay.scheduler_bridge.domain.lerobot import lerobot_run
from forebay.scheduler_bridge.domain.mount_rules import place_mounts
from forebay.scheduler_bridge.domain.pod_overlay import HOST_FIELDS, POD_FIELDS
from forebay.scheduler_bridge.domain.pod_parts import (
    AgentImage,
    Attended,
    failure_policy,
    our_volumes,
    prepare_container,
    run_mount,
    watch_container,
    wrapped,
)
from forebay.scheduler_bridge.domain.pod_volumes import Input, Storage, service_uris, storage_of
from forebay.scheduler_bridge.domain.project import ProjectFile, pool_path
from forebay.scheduler_bridge.domain.shm import shm_needed
from forebay.scheduler_bridge.domain.specification import parameter_variable, placed_words, spec_digest, words_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as it was accepted."""

    spec: JobSpec
    job: str
    """`<name>-<run>`."""
    run: int
    user: str
    """From the authenticated request."""

    @property
    def name(self) -> str:
        """Of the Job object."""
        return layout.object_name(self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster as one project sees it."""

    project: ProjectFile
    agent: AgentImage

    @property
    def kueue(self) -> bool:
        return bool(self.project.queues)


def render(submission: Submission, pins: Sequence[PinnedInput], site: Site) -> list[Json]:
    """The objects in the order in which they are created. Without pins the gate is opened with them later."""
    objects = [_job(submission, pins, site)]
    if (submission.spec.nodes or 1) > 1:
        objects.append(_service(submission, site))
    return objects


def inputs_of(spec: JobSpec) -> tuple[Input, ...]:
    """Datasets and models of a job, each once, by name."""
    named = [("dataset", item.name) for item in spec.datasets] + [("model", item.name) for item in spec.models]
    found = [Input(kind=kind, name=parse_logical_name(text, kind=kind).name) for kind, text in named]
    return tuple(dict.fromkeys(found))


def pod_annotations(submission: Submission, pins: Sequence[PinnedInput], site: Site) -> dict[str, str]:
    """What the pod learns when the gate opens: where its data lies, and what the agent must find there."""
    spec, pool = submission.spec, site.project.data
    paths = {f"{pin.kind}:{pin.name}": pool_path(pool, pin.root) for pin in pins} if pool else {}
    annotations = {
        layout.pin_annotation(item.kind, item.name): paths.get(f"{item.kind}:{item.name}") or layout.UNPINNED
        for item in inputs_of(spec)
    }
    annotations[layout.INPUTS] = canonical_json(_told_to_agent(submission, pins, site)).decode()
    return annotations


def checkpoint_folder(spec: JobSpec) -> str:
    """Where complete saves of this job appear in its container."""
    if spec.checkpoints and spec.checkpoints.folder:
        return spec.checkpoints.folder
    run = lerobot_run(words_of(spec))
    return (run.checkpoints if run else None) or layout.CHECKPOINT_DIR


def _told_to_agent(submission: Submission, pins: Sequence[PinnedInput], site: Site) -> Json:
    spec = submission.spec
    run = lerobot_run(words_of(spec))
    places = {f"{item.kind}:{item.name}": item.directory for item in inputs_of(spec)}
    compatibility = Compatibility(
        datasets=tuple(f"dataset:{pin.name}@v{pin.number}" for pin in pins if pin.kind == "dataset"),
        code_revision=spec.code_revision,
        parameters_sha256=content_digest(dict(spec.parameters)),
    )
    return {
        "inputs": [pin.model_dump(mode="json", exclude_none=True) for pin in pins],
        "places": {f"{pin.name}@v{pin.number}": places[f"{pin.kind}:{pin.name}"] for pin in pins},
        "expects": sorted(places),
        "compatibility": compatibility.model_dump(mode="json", exclude_none=True),
        "resources": spec.resources.model_dump(mode="json", exclude_none=True),
        "allow_cold_start": spec.restart.allow_cold_start,
        **({"forbid_cold_start": True} if spec.restart.forbid_cold_start else {}),
        "command": list(_words(spec)),
        "shm_needed": shm_needed(spec),
        "free_bytes": site.project.preflight.free_bytes,
        "skip": list(site.project.preflight.skip),
        "data_kinds": list(site.project.data.kinds) if site.project.data else [],
        "uris": service_uris(site.project, submission.job, job_continued(spec)),
        "output_dir": run.output_dir if run else None,
    }


def _words(spec: JobSpec) -> tuple[str, ...]:
    return placed_words(spec, lambda name: f"{layout.DATA_DIR}/{name}")


def _job(submission: Submission, pins: Sequence[PinnedInput], site: Site) -> Json:
    spec = submission.spec
    nodes = spec.nodes or 1
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": submission.name,
            "namespace": site.project.namespace,
            "labels": _job_labels(submission, site),
            "annotations": _job_annotations(submission, site),
        },
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimitPerIndex": spec.restart.max_attempts - 1,
            "maxFailedIndexes": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": failure_policy(),
            "template": _template(submission, pins, site),
        },
    }


def _job_labels(submission: Submission, site: Site) -> dict[str, str]:
    labels = _labels(submission)
    if site.kueue:
        labels[layout.KUEUE_QUEUE] = queue_of(submission.spec, site.project)
        if submission.spec.priority_class:
            labels[layout.KUEUE_PRIORITY] = submission.spec.priority_class
    return labels


def queue_of(spec: JobSpec, project: ProjectFile) -> str:
    """The LocalQueue: `default` is the project's first, unless one has that very name."""
    return project.queues[0] if spec.queue == "default" and "default" not in project.queues else spec.queue


def _labels(submission: Submission) -> dict[str, str]:
    return {
        layout.MANAGED_BY: "forebay",
        layout.PROJECT_LABEL: submission.spec.project,
        layout.JOB_LABEL: submission.job,
        layout.RUN_LABEL: str(submission.run),
    }


def _job_annotations(submission: Submission, site: Site) -> dict[str, str]:
    annotations = {layout.SPEC_DIGEST: spec_digest(submission.spec), layout.OWNER: submission.user}
    if site.kueue:
        annotations[layout.KUEUE_GATED_BY] = layout.GATE
    return annotations


def _template(submission: Submission, pins: Sequence[PinnedInput], site: Site) -> Json:
    spec = submission.spec
    overlay = spec.pod or {}
    storage = storage_of(
        inputs_of(spec),
        job=submission.job,
        project=site.project,
        shm_bytes=spec.resources.shm_bytes,
        mounts=place_mounts(spec.mounts or "", user=submission.user, project=site.project).mounts,
        continues=job_continued(spec),
    )
    attended = _attended(submission, site)
    pod: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": "serviceAccountName" in overlay,
        "enableServiceLinks": False,
        **{name: overlay[name] for name in (*POD_FIELDS, *HOST_FIELDS) if name in overlay},
        **_security(overlay, site.project),
        "tolerations": _tolerations(spec, site.project),
        "initContainers": [
            prepare_container(site.agent, attended, storage),
            watch_container(site.agent, attended, storage),
        ],
        "containers": [_container(submission, site, storage)],
        "volumes": [*our_volumes(), *storage.volumes],
    }
    if selector := {**_gpu_type(spec, site.project)["node_selector"], **overlay.get("nodeSelector", {})}:
        pod["nodeSelector"] = selector
    if (spec.nodes or 1) > 1:
        pod["subdomain"] = layout.service_name(submission.name)
    if spec.priority_class and not site.kueue:
        pod["priorityClassName"] = spec.priority_class
    labels = {**overlay.get("labels", {}), **_labels(submission)}
    annotations = {**overlay.get("annotations", {}), **pod_annotations(submission, pins, site)}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _security(overlay: Mapping[str, Any], project: ProjectFile) -> Json:
    if not project.pod.run_as_non_root:
        return {}
    return {"securityContext": {"runAsNonRoot": True, **overlay.get("securityContext", {})}}


def _attended(submission: Submission, site: Site) -> Attended:
    spec = submission.spec
    return Attended(
        project=spec.project,
        job=submission.job,
        name=submission.name,
        checkpoints=checkpoint_folder(spec),
        gpus=spec.resources.gpus,
        gpu_resource=_gpu_type(spec, site.project)["resource"],
        lerobot=lerobot_run(words_of(spec)) is not None,
        nodes=spec.nodes or 1,
    )


def _gpu_type(spec: JobSpec, project: ProjectFile) -> Json:
    declared = project.gpu_types.get(spec.resources.gpu_type or "")
    if declared is None or not spec.resources.gpus:
        return {"resource": project.gpu_resource, "node_selector": {}, "tolerations": []}
    return {
        "resource": declared.resource,
        "node_selector": dict(declared.node_selector),
        "tolerations": [dict(item) for item in declared.tolerations],
    }


def _tolerations(spec: JobSpec, project: ProjectFile) -> list[Json]:
    """Short patience with a node that does not answer: else a replacement waits five minutes, or for ever."""
    patience = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": project.node_lost_seconds}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ]
    return [*patience, *_gpu_type(spec, project)["tolerations"], *(spec.pod or {}).get("tolerations", [])]


def _container(submission: Submission, site: Site, storage: Storage) -> Json:
    spec = submission.spec
    overlay = spec.pod or {}
    command, args = wrapped(_words(spec))
    container: Json = {
        "name": layout.TRAIN,
        "image": spec.image,
        "command": command,
        "args": args,
        "env": [*storage.pins, *_environment(submission), *overlay.get("env", [])],
        "resources": _resources(spec, _gpu_type(spec, site.project)["resource"]),
        "volumeMounts": [run_mount(), *storage.train],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    optional = {
        "workingDir": spec.working_directory,
        "envFrom": overlay.get("envFrom"),
        "imagePullPolicy": overlay.get("imagePullPolicy"),
        "securityContext": overlay.get("containerSecurityContext"),
    }
    return {**container, **{name: value for name, value in optional.items() if value is not None}}


def _environment(submission: Submission) -> list[Json]:
    spec = submission.spec
    plain: dict[str, str] = dict(spec.environment)
    plain |= {parameter_variable(name): _text(value) for name, value in spec.parameters.items()}
    plain |= {
        "FOREBAY_PROJECT": spec.project,
        "FOREBAY_JOB": submission.job,
        "FOREBAY_RUN_DIR": layout.RUN_DIR,
        "FOREBAY_OUTPUT": layout.OUTPUT_DIR,
        "FOREBAY_CHECKPOINTS": checkpoint_folder(spec),
        "FOREBAY_DATA": layout.DATA_DIR,
    }
    if (run := lerobot_run(words_of(spec))) is not None:
        plain["FOREBAY_LEROBOT_WORDS"] = str(run.resume_words)
    made: list[Json] = []
    nodes = spec.nodes or 1
    if nodes > 1:
        service = layout.service_name(submission.name)
        index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        plain |= {
            "MASTER_ADDR": f"{submission.name}-0.{service}",
            "MASTER_PORT": str(layout.MASTER_PORT),
            "WORLD_SIZE": str(nodes),
        }
        plain.pop("RANK", None)
        made.append({"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}})
    return [{"name": name, "value": value} for name, value in plain.items()] + made


def _text(value: object) -> str:
    """Booleans as `true` and `false`, numbers as Python prints them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resources(spec: JobSpec, gpu_resource: str) -> Json:
    asked = spec.resources
    memory = show_bytes_quantity(asked.memory_bytes)
    requests: Json = {"cpu": show_cpu_quantity(asked.cpu), "memory": memory}
    limits: Json = {"memory": memory}
    if asked.ephemeral_storage_bytes:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = show_bytes_quantity(asked.ephemeral_storage_bytes)
    if asked.gpus:
        requests[gpu_resource] = limits[gpu_resource] = str(asked.gpus)
    return {"requests": requests, "limits": limits}


def _service(submission: Submission, site: Site) -> Json:
    """Gives each pod of a gang its name. Pods find each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": layout.service_name(submission.name),
            "namespace": site.project.namespace,
            "labels": _labels(submission),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": submission.name},
            "ports": [{"name": "master", "port": layout.MASTER_PORT}],
        },
    }


def owned(item: Mapping[str, Any], job_uid: str, job_name: str) -> Json:
    """The same object, removed together with the Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name, "uid": job_uid}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}

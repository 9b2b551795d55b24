"""Volumes of a training pod: pinned data read-only, outputs and checkpoints apart, /dev/shm, and the job's own mounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.contracts.quantities import show_bytes_quantity
from forebay.scheduler_bridge.domain.mount_rules import PlacedMount
from forebay.scheduler_bridge.domain.mounts import CLAIMS, SHM, Mount, MountType
from forebay.scheduler_bridge.domain.pod_layout import (
    CHECKPOINT_DIR,
    CONTINUED_DIR,
    DATA_DIR,
    MODEL_DIR,
    OUTPUT_DIR,
    pin_annotation,
    pin_variable,
    volume_name,
)
from forebay.scheduler_bridge.domain.project import Claim, ProjectFile

Json = dict[str, Any]
DATA_VOLUME = "forebay-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A dataset or model that the job names, by its name without a tag."""

    kind: str
    name: str

    @property
    def directory(self) -> str:
        return f"{DATA_DIR if self.kind == 'dataset' else MODEL_DIR}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Volumes with the mounts of the training container and of ours."""

    volumes: tuple[Json, ...]
    train: tuple[Json, ...]
    """`volumeMounts` of the training container."""
    ours: tuple[Json, ...]
    """`volumeMounts` of our two containers: what they check and watch."""
    pins: tuple[Json, ...]
    """`env` that the sub-paths of the data are made of; every container that mounts data needs it."""


def storage_of(
    inputs: Sequence[Input],
    *,
    job: str,
    project: ProjectFile,
    shm_bytes: int | None,
    mounts: Iterable[PlacedMount],
    continues: str | None = None,
) -> Storage:
    """All of it. The data's sub-path follows from the pod's annotations, which are written when the gate opens.

    `continues`: the earlier job whose saves are mounted, too, to read only.
    """
    volumes: list[Json] = []
    data = [_data_mount(index, item) for index, item in enumerate(inputs)]
    if inputs and project.data is not None:
        volumes.append(_claim(DATA_VOLUME, project.data.pvc, read_only=True))
    kept, kept_mounts = _kept(job, project, continues)
    volumes += kept
    shm = [_memory("forebay-shm", show_bytes_quantity(shm_bytes))] if shm_bytes else []
    shm_mounts = [{"name": "forebay-shm", "mountPath": SHM}] if shm_bytes else []
    own_volumes, own_mounts = _own(mounts)
    shm_mounts += [item for item in own_mounts if item["mountPath"] == SHM]
    return Storage(
        volumes=(*volumes, *shm, *own_volumes),
        train=(*data, *kept_mounts, *(shm_mounts if shm_bytes else ()), *own_mounts),
        ours=(*data, *kept_mounts, *shm_mounts, *(item for item in own_mounts if item["mountPath"] != SHM)),
        pins=tuple(_pin(index, item) for index, item in enumerate(inputs)),
    )


def _data_mount(index: int, item: Input) -> Json:
    return {
        "name": DATA_VOLUME,
        "mountPath": item.directory,
        "subPathExpr": f"$({pin_variable(index)})",
        "readOnly": True,
    }


def _pin(index: int, item: Input) -> Json:
    path = f"metadata.annotations['{pin_annotation(item.kind, item.name)}']"
    return {"name": pin_variable(index), "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _kept(job: str, project: ProjectFile, continues: str | None) -> tuple[list[Json], list[Json]]:
    """Outputs and checkpoints: each a folder of this job, apart from each other, on claims where there are any."""
    folders = [("forebay-output", project.outputs, "output", OUTPUT_DIR)]
    folders.append(("forebay-checkpoints", project.checkpoints or project.outputs, "checkpoints", CHECKPOINT_DIR))
    volumes: dict[str, Json] = {}
    mounts: list[Json] = []
    for name, claim, folder, directory in folders:
        if claim is None:
            volumes[name] = {"name": name, "emptyDir": {}}
            mounts.append({"name": name, "mountPath": directory})
            continue
        volume = f"claim-{name}" if claim.pvc not in volumes else volumes[claim.pvc]["name"]
        volumes.setdefault(claim.pvc, _claim(volume, claim.pvc, read_only=False))
        mounts.append({"name": volume, "mountPath": directory, "subPath": job_folder(claim, project, job, folder)})
        if continues is not None:
            there, path = f"{CONTINUED_DIR}/{folder}", job_folder(claim, project, continues, folder)
            mounts.append({"name": volume, "mountPath": there, "subPath": path, "readOnly": True})
    return list(volumes.values()), mounts


def job_folder(claim: Claim, project: ProjectFile, job: str, folder: str) -> str:
    """Where a job's outputs or checkpoints lie on their claim."""
    return "/".join(part for part in (claim.sub_path, project.project, job, folder) if part)


def service_uris(project: ProjectFile, job: str, continues: str | None = None) -> dict[str, str]:
    """Folder of the container -> how the services find the same folder, where a claim's root says so."""
    folders = [(OUTPUT_DIR, project.outputs, "output")]
    folders.append((CHECKPOINT_DIR, project.checkpoints or project.outputs, "checkpoints"))
    found = {}
    for directory, claim, folder in folders:
        if claim is not None and claim.root is not None:
            root = claim.root.removeprefix("file://").rstrip("/")
            found[directory] = f"file://{root}/{job_folder(claim, project, job, folder)}"
            if continues is not None:
                found[f"{CONTINUED_DIR}/{folder}"] = f"file://{root}/{job_folder(claim, project, continues, folder)}"
    return found


def _own(mounts: Iterable[PlacedMount]) -> tuple[list[Json], list[Json]]:
    """The job's own mounts; the same source twice is one volume, mounted twice."""
    volumes: dict[str, Json] = {}
    made: list[Json] = []
    for item in mounts:
        name = _name(item.mount)
        volumes.setdefault(name, _source(name, item.mount))
        mount: Json = {"name": name, "mountPath": item.target}
        if item.sub_path is not None:
            mount["subPath"] = item.sub_path
        if item.read_only:
            mount["readOnly"] = True
        made.append(mount)
    return list(volumes.values()), made


def _name(mount: Mount) -> str:
    if mount.type in CLAIMS:
        return volume_name("pvc", mount.source)
    if mount.type is MountType.MEMORY:  # each is memory of its own
        return volume_name("memory", f"{mount.source} {mount.directory}")
    return volume_name(mount.type.value, mount.source)


def _source(name: str, mount: Mount) -> Json:
    match mount.type:
        case MountType.PVC | MountType.PVC_SHARE | MountType.STORAGE:
            return _claim(name, mount.source, read_only=False)
        case MountType.NFS:
            return {"name": name, "nfs": {"server": mount.nfs_server, "path": mount.nfs_path}}
        case MountType.HOSTPATH:
            return {"name": name, "hostPath": {"path": mount.source}}
        case MountType.CONFIGMAP:
            return {"name": name, "configMap": {"name": mount.source}}
        case MountType.SECRET:
            return {"name": name, "secret": {"secretName": mount.source}}
        case MountType.MEMORY:
            return _memory(name, mount.source)


def _claim(name: str, claim: str, *, read_only: bool) -> Json:
    source: Json = {"claimName": claim}
    if read_only:
        source["readOnly"] = True
    return {"name": name, "persistentVolumeClaim": source}


def _memory(name: str, size: str) -> Json:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}

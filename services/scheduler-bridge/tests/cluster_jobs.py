"""Builders of jobs, projects and pins for the tests about clusters."""

from __future__ import annotations

from typing import Any

from forebay.contracts.v1.datasets import PinnedInput
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain.manifest import Site, Submission
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.domain.project import ProjectFile, parse_project
from forebay.scheduler_bridge.domain.specification import parse_spec

AGENT = AgentImage(image="registry.example/forebay:1", nats_url="nats://bus:4222")
LEROBOT = (
    "lerobot-train",
    "--dataset.root={data:pick-place}",
    "--output_dir=/forebay/output/train",
    "--save_freq=1000",
)


def project_file(**fields: Any) -> ProjectFile:
    """Project arm-lab in namespace robot-train, with Kueue, a pool and an output claim."""
    values: dict[str, Any] = {
        "project": "arm-lab",
        "namespace": "robot-train",
        "queues": ["team-a", "team-b"],
        "priority_classes": ["high"],
        "data": {"pvc": "pool", "root": "file:///pool"},
        "outputs": {"pvc": "train-output", "sub_path": "runs"},
        "gpu_types": {"H200": {"node_selector": {"nvidia.com/gpu.product": "NVIDIA-H200"}}},
        **fields,
    }
    found = parse_project(values)
    assert isinstance(found, ProjectFile), found
    return found


def job_spec(**fields: Any) -> JobSpec:
    """A job that trains on pick-place."""
    values: dict[str, Any] = {
        "name": "pick",
        "image": "registry.example/trainer@sha256:1",
        "command": ["python", "train.py"],
        "datasets": [{"name": "dataset:pick-place@train-ready"}],
        "resources": {"cpu": "500m", "memory": "4Gi", "shm": "1Gi"},
        **fields,
    }
    found = parse_spec(values, project="arm-lab")
    assert isinstance(found, JobSpec), found
    return found


def submission(*, run: int = 1, user: str = "alice", **fields: Any) -> Submission:
    spec = job_spec(**fields)
    return Submission(spec=spec, job=f"{spec.name}-{run}", run=run, user=user)


def site(**fields: Any) -> Site:
    return Site(project=project_file(**fields), agent=AGENT)


def pin(name: str = "pick-place", number: int = 4) -> PinnedInput:
    return PinnedInput(
        kind="dataset",
        logical=f"dataset:{name}@train-ready",
        name=name,
        number=number,
        root=f"file:///pool/datasets/arm-lab/{name}/v{number}",
        manifest_sha256="a" * 64,
    )

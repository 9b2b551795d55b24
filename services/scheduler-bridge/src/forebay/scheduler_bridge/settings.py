"""Settings of the bridge; the only module of it that reads the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from forebay.runtime.settings import ServiceSettings, environment, load_settings

PASSED_ON = ("PATH", "HOME", "LANG")
"""All that an attempt gets of the service's own environment."""


class BridgeSettings(ServiceSettings):
    """FOREBAY_LOCAL_* declare what the local backend may give to jobs; unset: what the machine has."""

    backend: Literal["local", "kubernetes"] = "local"
    """Who carries jobs: processes of this machine, or a cluster."""
    kubeconfig: Path | None = None
    """The cluster and who we are there; unset: the service account of the pod this runs in."""
    projects: Path | None = None
    """Folder of project files (`*.yaml`): what each project may use of the cluster."""
    cluster_concurrency: int = Field(default=16, ge=1)
    """Jobs whose objects are looked at at once."""
    agent_image: str = "forebay-agent:latest"
    """Image of our own containers in training pods."""
    attempt_issuer: Path | None = None
    """Account key with which the bus is told what a pod may do (`keys/attempts.nk`). Unset: pods are not let onto
    the bus, and speak only through exit codes."""
    agent_nats_url: str | None = None
    """The bus as pods reach it; unset: as this service does."""
    webhook_tls: Path | None = None
    """Folder with `tls.crt` and `tls.key`; read by the webhook's own process (`forebay.scheduler_bridge.webhook`)."""
    webhook_port: int = Field(default=8443, ge=1, le=65535)
    """Where the API server reaches the webhook, on every address."""
    local_cpus: float | None = Field(default=None, gt=0)
    """Processors that jobs may hold together."""
    local_memory_bytes: int | None = Field(default=None, gt=0)
    """Memory in bytes that jobs may hold together."""
    local_gpus: int | None = Field(default=None, ge=0)
    """GPUs, given out by index from 0."""
    local_concurrency: int = Field(default=256, ge=1)
    """Attempts that are watched at once; more would wait although they hold quota."""
    stop_grace_s: float = Field(default=10.0, ge=0, le=600)
    """Seconds between asking a cancelled attempt to end and ending it."""


def load() -> BridgeSettings:
    """Settings from the environment; raises with every problem listed."""
    return load_settings(BridgeSettings)


def passed_on() -> dict[str, str]:
    """The variables that attempts inherit."""
    found = environment()
    return {name: found[name] for name in PASSED_ON if name in found}

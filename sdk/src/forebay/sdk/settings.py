"""What the environment says about the job this process belongs to, or the bus it can reach.

Set by the scheduler-bridge for every attempt; read here and passed down.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from forebay.contracts.identifiers import Id
from forebay.runtime.connection import Key, PodToken
from forebay.runtime.disk_room import ATTEMPT_BYTES
from forebay.runtime.settings import environment, load_settings

PARAMETER_PREFIX = "FOREBAY_PARAM_"


class JobSettings(BaseModel):
    """One attempt of one job, as the process inside it sees it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path = Path(".forebay")
    project: Id
    job: Id
    attempt: int = Field(ge=1)
    attempt_dir: Path
    """The agent's own files: lock, process.json, exit.json."""
    output: Path
    """Where the training command writes; its `checkpoints` folder is watched."""
    inputs: Path
    """JSON file with the pinned inputs, resources and compatibility of the job."""
    nats_url: str = "nats://127.0.0.1:4222"
    nkey_file: Path | None = None

    bus_deadline_s: float = 20.0
    """How long the agent waits at the end for events to be delivered; then they stay in the outbox."""
    resume_deadline_s: float = 300.0
    """How long a restart waits for the registry to say where to resume."""
    verify_deadline_s: float = 30.0
    """How long a restart waits for the newest checkpoint to be verified before it is passed over."""
    free_bytes: int = ATTEMPT_BYTES
    """Room that the output folder must have before the command is started."""


class PodSettings(BaseModel):
    """One pod of a job, as our containers in it see it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path
    """Our own containers' folder: the outbox."""
    project: Id
    job: Id
    run_dir: Path
    """Shared with the training container: the shim, the resume decision."""
    output: Path
    checkpoints: Path
    inputs: Path
    nats_url: str
    nkey_file: Path | None = None
    token_file: Path | None = None
    """The pod's own token for the bus, in a file that the kubelet keeps new; it comes before an nkey."""
    trainer: str | None = None
    """`lerobot`: its saves are finished when `last` moves."""
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    index: int = Field(default=0, ge=0)
    """Rank of this pod in a gang; only rank 0 speaks about checkpoints."""
    nodes: int = Field(default=1, ge=1)
    """Pods that run together as one attempt."""
    failures: int = Field(default=0, ge=0)
    ignored_failures: int = Field(default=0, ge=0)
    """Pods of this rank that failed before, counted and not counted as attempts."""
    termination_log: Path = Path("/dev/termination-log")
    mount_table: Path = Path("/proc/self/mounts")
    report_deadline_s: float = 5.0
    """How long the checks try to get their report out; what is left the side-car sends."""
    bus_deadline_s: float = 20.0
    resume_deadline_s: float = 300.0
    verify_deadline_s: float = 30.0

    @property
    def key(self) -> Key:
        """How this pod shows the bus who it is."""
        if self.token_file and self.token_file.is_file():
            return PodToken(self.token_file, self.job)
        return self.nkey_file if self.nkey_file and self.nkey_file.is_file() else None

    def as_job(self, attempt: int) -> JobSettings:
        """The same job in the words of the agent on a machine."""
        return JobSettings(
            home=self.home,
            project=self.project,
            job=self.job,
            attempt=attempt,
            attempt_dir=self.output / ".forebay" / f"attempt-{attempt}",
            output=self.checkpoints.parent,
            inputs=self.inputs,
            nats_url=self.nats_url,
            nkey_file=self.nkey_file,
            bus_deadline_s=self.bus_deadline_s,
            resume_deadline_s=self.resume_deadline_s,
            verify_deadline_s=self.verify_deadline_s,
        )


class PlaceSettings(BaseModel):
    """Where this installation is, for a process outside of any job."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path = Path(".forebay")
    project: Id | None = None
    nats_url: str | None = None
    nkey_file: Path | None = None


class CurrentJob(BaseModel):
    """What a training script may want to know about its job; everything has a sensible value outside of one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    job: Id | None = None
    attempt: int = 1
    output: Path = Path("output")
    inputs: Path | None = None
    resume_from: Path | None = None
    """The checkpoint to continue from; None: start from the beginning."""
    resume_step: int | None = None
    parameters: Mapping[str, str] = Field(default_factory=dict)
    """Hyper-parameters of the job, names in lower case."""


def current_job(environ: Mapping[str, str] | None = None) -> CurrentJob:
    """Describe the job that this process trains for."""
    environ = environment() if environ is None else environ
    found = load_settings(CurrentJob, environ)
    parameters = {
        name.removeprefix(PARAMETER_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PARAMETER_PREFIX)
    }
    return found.model_copy(update={"parameters": parameters})


def inside_job(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether the scheduler started this process as an attempt."""
    environ = environment() if environ is None else environ
    return bool(environ.get("FOREBAY_ATTEMPT_DIR"))


def job_settings(environ: Mapping[str, str] | None = None) -> JobSettings:
    return load_settings(JobSettings, environ)


def pod_settings(environ: Mapping[str, str] | None = None) -> PodSettings:
    return load_settings(PodSettings, environ)


def place_settings(environ: Mapping[str, str] | None = None) -> PlaceSettings:
    return load_settings(PlaceSettings, environ)

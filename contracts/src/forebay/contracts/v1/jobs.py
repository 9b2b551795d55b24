"""Training jobs: the request, the gate, attempts, runtime facts and the verdict on them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from forebay.contracts.body import EventBody, Value
from forebay.contracts.identifiers import Id, Name
from forebay.contracts.reasons import Condition, Layer, Reason


class DatasetInput(Value):
    """A dataset the job reads: logical name, and which part of it."""

    name: str
    columns: tuple[str, ...] = ()
    episodes: tuple[int, int] | None = None
    access: Literal["A", "B", "C"] | None = None
    """How the job reads it: A LeRobot files on the mount, B Lance on object storage, C Lance on the mount.
    None: as the version was made."""
    version: int | None = Field(default=None, ge=1)
    """The version that the name stands for, whatever its tag names now: set when an earlier run is continued."""


class ModelInput(Value):
    """Base weights the job starts from; pinned, leased, warmed and gated like a dataset."""

    name: str
    version: int | None = Field(default=None, ge=1)
    """As for a dataset."""


class Resources(Value):
    """What the job holds while it runs; with `nodes: N` each node holds it."""

    cpu: float = Field(default=1, gt=0)
    memory_bytes: int = Field(default=1 << 30, gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu_type: str | None = None
    """A GPU type that the project file declares."""
    ephemeral_storage_bytes: int | None = Field(default=None, gt=0)
    """Room on the node's own disk: container layers, logs, disk-backed scratch folders."""
    shm_bytes: int | None = Field(default=None, gt=0)
    """Size of /dev/shm; none: what the container runtime gives, usually 64 MiB."""


class CheckpointPolicy(Value):
    """Where complete saves appear and how often the training writes one."""

    folder: str | None = None
    """Absolute path of the folder that holds one folder per save; none: `$FOREBAY_OUTPUT/checkpoints`."""
    save_every_steps: int | None = Field(default=None, ge=1)
    seconds_per_step: float | None = Field(default=None, gt=0)
    """Measured or guessed; with it, the work that a lost node would cost is told at submit."""


class Loader(Value):
    """The training's data loader, as far as the size of /dev/shm depends on it."""

    workers: int = Field(ge=0, le=4096)
    batch_size: int = Field(ge=1)
    prefetch: int = Field(default=2, ge=1)
    sample_bytes: int = Field(ge=1)


class RestartPolicy(Value):
    """How often a failed attempt is tried again, and from where."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    allow_cold_start: bool = False
    """Start at step 0 even though checkpoints exist and none of them can be used."""
    start_from: str | None = None
    """A checkpoint (`ck-…`) whose weights the first attempt starts from: a warm start, unless it was imported to resume.
    Or an earlier job (`reach-1`): training continues from its checkpoints, and starts warm where the inputs differ."""
    forbid_cold_start: bool | None = None
    """Refuse a second attempt at step 0 even before the first checkpoint, when nothing would be lost by it."""


class JobSpec(Value):
    """One training job as its owner wrote it."""

    name: Name
    project: Id
    command: tuple[str, ...] = Field(min_length=1)
    datasets: tuple[DatasetInput, ...] = ()
    models: tuple[ModelInput, ...] = ()
    resources: Resources = Resources()
    queue: Id = "default"
    priority: int = 0
    restart: RestartPolicy = RestartPolicy()
    environment: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Hyper-parameters for lineage; the command receives them as FOREBAY_PARAM_<NAME>."""
    code_revision: str | None = None
    image: str | None = None
    """Container image the command runs in, with its digest; none on a plain machine."""
    working_directory: str | None = None
    wait_for_dataset: bool = False
    # Fields below came later. Each is None when unset, so that the digest of an older job stays what it was.
    args: tuple[str, ...] | None = None
    """Words after the command. `{data:NAME}` stands for the folder of a dataset, here and in the command."""
    nodes: int | None = Field(default=None, ge=1, le=1024)
    """Pods that start together, each with `resources`; rank 0 is MASTER_ADDR."""
    mounts: str | None = None
    """`source(type):dir[:ro]`, comma separated: `team(pvc):/work, 8G(memory):/scratch`."""
    priority_class: str | None = None
    """Name of the cluster's (or Kueue's) priority class."""
    checkpoints: CheckpointPolicy | None = None
    loader: Loader | None = None
    pod: dict[str, Any] | None = None
    """Fields of the pod in Kubernetes' own spelling: `tolerations`, `imagePullSecrets`, `envFrom`, …"""


class AppliedObject(Value):
    """A Job object that somebody made with `kubectl apply`; its uid is the job's identity."""

    name: str
    uid: str
    gated: bool
    """False: it came past the webhook, so nothing holds it back until its data is ready."""
    problem: str | None = None
    """Why its annotations could not be followed."""


class JobSubmitted(EventBody):
    """A job was accepted into the system; nothing is held yet."""

    event: ClassVar[str] = "JobSubmitted"
    job: Id
    """`<name>-<run>`; of a Job that was applied, its name with eight digits of its own."""
    run: int = Field(ge=1)
    spec: JobSpec
    spec_sha256: str
    submitted_by: str
    client_id: str | None = None
    """The submitting client's own id of the request: a repeat of it is the same submission."""
    applied: AppliedObject | None = None
    """The object on the cluster, when it was there before the job."""


class ConditionState(Value):
    """One readiness condition with the sentence a person reads."""

    type: Condition
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str
    since: AwareDatetime
    evidence: tuple[str, ...] = ()
    """Ids of the events that prove it."""


class JobGated(EventBody):
    """The gate is shut, and these conditions say why. Published when the answer changes."""

    event: ClassVar[str] = "JobGated"
    job: Id
    conditions: tuple[ConditionState, ...]
    generation: int = Field(default=1, ge=1)
    """Counts the answers of this job: the highest is the one that stands."""


class JobGateOpened(EventBody):
    """All conditions hold: the job may compete for quota."""

    event: ClassVar[str] = "JobGateOpened"
    job: Id
    conditions: tuple[ConditionState, ...]
    generation: int = Field(default=1, ge=1)
    """Counts the answers of this job: the highest is the one that stands."""


class Quantity(Value):
    """One resource: how much is needed, how much is free, how much there is in all."""

    resource: str
    need: float
    free: float
    total: float


class WorkloadPending(EventBody):
    """The gate is open but quota is not there."""

    event: ClassVar[str] = "WorkloadPending"
    job: Id
    reason: Reason
    message: str
    lacking: tuple[Quantity, ...] = ()
    generation: int = Field(default=1, ge=1)
    """Counts the answers of this job: the highest is the one that stands."""


class WorkloadAdmitted(EventBody):
    """Quota is held for one attempt from now on."""

    event: ClassVar[str] = "WorkloadAdmitted"
    job: Id
    attempt: int = Field(ge=1)
    resources: Resources
    devices: tuple[str, ...] = ()
    """GPU indices of this machine; empty for none."""
    queue: Id = "default"


class WorkloadEvicted(EventBody):
    """Quota was taken back."""

    event: ClassVar[str] = "WorkloadEvicted"
    job: Id
    attempt: int
    reason: Reason
    message: str
    said: str | None = None
    """The reason in the words of whoever took it back: `PodsReadyTimeout`, `Preempted`, …"""


class PodUnschedulable(EventBody):
    """No node takes the pod now; the scheduler's own words are kept."""

    event: ClassVar[str] = "PodUnschedulable"
    job: Id
    attempt: int
    pod: str
    reason: str
    message: str


class PodScheduled(EventBody):
    """A node was found."""

    event: ClassVar[str] = "PodScheduled"
    job: Id
    attempt: int
    pod: str
    node: str


class ContainerWaiting(EventBody):
    """A container does not start yet (image, config, mounts)."""

    event: ClassVar[str] = "ContainerWaiting"
    job: Id
    attempt: int
    pod: str
    container: str
    reason: str
    message: str


class VolumeMountFailed(EventBody):
    """A volume cannot be attached or mounted."""

    event: ClassVar[str] = "VolumeMountFailed"
    job: Id
    attempt: int
    pod: str
    volume: str | None = None
    reason: str
    message: str


class PreflightCheck(Value):
    """One check made where the job will run."""

    name: str
    status: Literal["pass", "warn", "fail"]
    reason: Reason
    message: str


class PreflightReported(EventBody):
    """What the agent found before the training command was started."""

    event: ClassVar[str] = "PreflightReported"
    job: Id
    attempt: int
    checks: tuple[PreflightCheck, ...]
    seconds: float = Field(ge=0)


class PreflightPassed(EventBody):
    """The attempt may start its command."""

    event: ClassVar[str] = "PreflightPassed"
    job: Id
    attempt: int
    warnings: tuple[str, ...] = ()


class PreflightFailed(EventBody):
    """The attempt must not start; every failed check is listed."""

    event: ClassVar[str] = "PreflightFailed"
    job: Id
    attempt: int
    failed: tuple[PreflightCheck, ...]


class AttemptStarted(EventBody):
    """The training process of this attempt was started: process recovery, when attempt > 1."""

    event: ClassVar[str] = "AttemptStarted"
    job: Id
    attempt: int = Field(ge=1)
    host: str
    process: str
    """Process identity on that host (`pid@start-time`) or pod uid."""
    recovers: int | None = None
    """The attempt that ended before this one."""


class AttemptEnded(EventBody):
    """The training process is gone."""

    event: ClassVar[str] = "AttemptEnded"
    job: Id
    attempt: int
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason
    message: str
    ran: bool = True
    """False: the training command was never started (preflight or resume refused)."""
    output: tuple[str, ...] | None = None
    """The last lines that the command printed."""


class NodeLost(EventBody):
    """A node is gone; attempts on it are unknown until proven dead."""

    event: ClassVar[str] = "NodeLost"
    node: Id
    reason: str
    message: str


class JobSucceeded(EventBody):
    """Terminal: the command ended with exit code 0."""

    event: ClassVar[str] = "JobSucceeded"
    job: Id
    attempt: int
    attempts: int


class JobFailed(EventBody):
    """Terminal: no further attempt will be made."""

    event: ClassVar[str] = "JobFailed"
    job: Id
    reason: Reason
    message: str
    attempts: int


class JobCancelled(EventBody):
    """Terminal: a person asked for it."""

    event: ClassVar[str] = "JobCancelled"
    job: Id
    by: str
    reason: str | None = None


class RuntimeFactRecorded(EventBody):
    """A raw fact as the runtime printed it, credentials masked; kept for ever."""

    event: ClassVar[str] = "RuntimeFactRecorded"
    job: Id
    attempt: int | None = None
    source: str
    """Who said it: `local-backend`, `kubelet`, `kueue`, …"""
    object: str
    reason: str
    message: str
    exit_code: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class Verdict(Value):
    """The one reason that decides, as a person and a program can read it."""

    layer: Layer
    cause: Reason
    message: str
    need: str | None = None
    have: str | None = None
    where: str | None = None
    fits: Literal["now", "never", "unknown"] = "unknown"
    since: AwareDatetime
    evidence: tuple[str, ...] = ()
    next_action: str
    rule: str


class VerdictChanged(EventBody):
    """Why the job is where it is now; published when the cause changes."""

    event: ClassVar[str] = "VerdictChanged"
    job: Id
    verdict: Verdict
    generation: int = Field(default=1, ge=1)
    """Counts the answers of this job: the highest is the one that stands."""
    sentence: str | None = None
    """What a person reads, as `forebay why` said it then: where the job is, the reason, and what to do next."""

"""Every reason code with its sentence. A code never changes its meaning; new ones are added."""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """The readiness conditions of DESIGN section 4."""

    DATASET_RESOLVED = "DatasetResolved"
    DATASET_ACCEPTED = "DatasetAccepted"
    DATASET_LEASED = "DatasetLeased"
    CACHE_WARM = "CacheWarm"
    REQUEST_VALID = "RequestValid"


class Layer(StrEnum):
    """Which layer a job waits in; the owner of the waiting time."""

    DATA = "data"
    QUOTA = "quota"
    ADMISSION_CHECK = "admission-check"
    NODE = "node"
    VOLUME = "volume"
    IMAGE = "image"
    CONFIG = "config"
    GANG = "gang"
    PREFLIGHT = "preflight"
    JOB_OBJECT = "job-object"
    PROCESS = "process"
    NONE = "none"
    NOT_EVALUATED = "not-evaluated-yet"


class Reason(StrEnum):
    """Reason codes in PascalCase; `SENTENCES` says each in words."""

    NOT_EVALUATED_YET = "NotEvaluatedYet"
    DATASET_UNKNOWN = "DatasetUnknown"
    DATASET_VERSION_MISSING = "DatasetVersionMissing"
    DATASET_UNTAGGED = "DatasetUntagged"
    DATASET_NOT_READY = "DatasetNotReady"
    DATASET_RESOLVED = "DatasetResolved"
    DATASET_ACCEPTED = "DatasetAccepted"
    DATASET_WITHDRAWN = "DatasetWithdrawn"
    DATASET_CHANGED = "DatasetChanged"
    MODEL_UNKNOWN = "ModelUnknown"
    LEASED = "Leased"
    LEASE_RELEASED = "LeaseReleased"
    PLANNING = "Planning"
    WARMING = "Warming"
    WARM = "Warm"
    CACHE_PARTIAL = "CachePartial"
    CACHE_LOST = "CacheLost"
    CACHE_FAILED = "CacheFailed"
    CACHE_OVER_BUDGET = "CacheOverBudget"
    CACHE_MOUNT_GONE = "CacheMountGone"
    COLUMN_UNKNOWN = "ColumnUnknown"
    FORMAT_UNSUPPORTED = "FormatUnsupported"
    FITS = "Fits"
    NEVER_FITS = "NeverFits"
    QUEUE_UNKNOWN = "QueueUnknown"
    NOTHING_NEEDED = "NothingNeeded"
    QUOTA_EXCEEDED = "QuotaExceeded"
    BEHIND_OTHERS = "BehindOthers"
    ADMITTED = "Admitted"
    PREFLIGHT_RUNNING = "PreflightRunning"
    DATA_READABLE = "DataReadable"
    DATA_UNREADABLE = "DataUnreadable"
    OUTPUT_WRITABLE = "OutputWritable"
    OUTPUT_NOT_WRITABLE = "OutputNotWritable"
    OUTPUT_FULL = "OutputFull"
    RESOURCES_VISIBLE = "ResourcesVisible"
    RESOURCES_MISSING = "ResourcesMissing"
    COMMAND_FOUND = "CommandFound"
    COMMAND_NOT_FOUND = "CommandNotFound"
    STATUS_UNREACHABLE = "StatusUnreachable"
    PREFLIGHT_FAILED = "PreflightFailed"
    RUNNING = "Running"
    COMPLETED = "Completed"
    PROCESS_FAILED = "ProcessFailed"
    PROCESS_KILLED = "ProcessKilled"
    OUT_OF_MEMORY = "OutOfMemory"
    AGENT_LOST = "AgentLost"
    START_FAILED = "StartFailed"
    RESUME_REFUSED = "ResumeRefused"
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    CANCELLED = "Cancelled"
    UNKNOWN = "Unknown"


SENTENCES: dict[Reason, str] = {
    Reason.NOT_EVALUATED_YET: "Nobody has looked at it yet.",
    Reason.DATASET_UNKNOWN: "No dataset of that name has any version.",
    Reason.DATASET_VERSION_MISSING: "The dataset exists, but not that version.",
    Reason.DATASET_UNTAGGED: "The dataset has versions, but none carries that tag.",
    Reason.DATASET_NOT_READY: "The dataset is being uploaded or checked.",
    Reason.DATASET_RESOLVED: "The name was resolved to one committed version.",
    Reason.DATASET_ACCEPTED: "The version was accepted, and nobody has taken that back.",
    Reason.DATASET_WITHDRAWN: "The version must not be used any more.",
    Reason.DATASET_CHANGED: "The version's files are not what was committed.",
    Reason.MODEL_UNKNOWN: "No model version of that name is registered.",
    Reason.LEASED: "The version is protected from clean-up for this job.",
    Reason.LEASE_RELEASED: "The job has ended, so its lease was given back.",
    Reason.PLANNING: "The bytes that the job will read are being worked out.",
    Reason.WARMING: "The planned bytes are being read into the cache.",
    Reason.WARM: "Every planned byte was verified.",
    Reason.CACHE_PARTIAL: "Some planned bytes are not in the cache yet.",
    Reason.CACHE_LOST: "What was warm is not any more.",
    Reason.CACHE_FAILED: "Warming failed.",
    Reason.CACHE_OVER_BUDGET: "The plan needs more room than the cache has.",
    Reason.CACHE_MOUNT_GONE: "The mount that jobs read through does not answer.",
    Reason.COLUMN_UNKNOWN: "A column that the job asks for is not in the dataset.",
    Reason.FORMAT_UNSUPPORTED: "The files use a feature that this version cannot plan, so it refuses to guess.",
    Reason.FITS: "The request fits this machine or a declared pool.",
    Reason.NEVER_FITS: "The request is larger than anything that exists here.",
    Reason.QUEUE_UNKNOWN: "No queue of that name is declared.",
    Reason.NOTHING_NEEDED: "The job declares no input of this kind.",
    Reason.QUOTA_EXCEEDED: "Other jobs hold what this one needs.",
    Reason.BEHIND_OTHERS: "Jobs of higher priority, or older ones, come first.",
    Reason.ADMITTED: "Quota is held for this job.",
    Reason.PREFLIGHT_RUNNING: "The checks before the start are under way.",
    Reason.DATA_READABLE: "The pinned version opens and reads where the job runs.",
    Reason.DATA_UNREADABLE: "The pinned version cannot be read where the job runs.",
    Reason.OUTPUT_WRITABLE: "The output folder takes files and has room.",
    Reason.OUTPUT_NOT_WRITABLE: "The output folder takes no files.",
    Reason.OUTPUT_FULL: "The output folder has no room.",
    Reason.RESOURCES_VISIBLE: "The processors, memory and GPUs are what was asked for.",
    Reason.RESOURCES_MISSING: "Fewer resources are visible than were asked for.",
    Reason.COMMAND_FOUND: "The command exists and can be executed.",
    Reason.COMMAND_NOT_FOUND: "The command cannot be found or executed.",
    Reason.STATUS_UNREACHABLE: "The bus cannot be reached; events are kept on disk and delivered later.",
    Reason.PREFLIGHT_FAILED: "A check before the start failed, so the command was not started.",
    Reason.RUNNING: "The training process runs.",
    Reason.COMPLETED: "The training process ended with exit code 0.",
    Reason.PROCESS_FAILED: "The training process ended with an error.",
    Reason.PROCESS_KILLED: "The training process was ended by a signal from outside.",
    Reason.OUT_OF_MEMORY: "The kernel ended the process because memory ran out.",
    Reason.AGENT_LOST: "The agent that watched the process is gone without a word.",
    Reason.START_FAILED: "The process could not be started.",
    Reason.RESUME_REFUSED: "No usable checkpoint exists and a cold start was not allowed.",
    Reason.ATTEMPTS_EXHAUSTED: "Every allowed attempt has failed.",
    Reason.CANCELLED: "A person cancelled it.",
    Reason.UNKNOWN: "Not known; the raw facts are on record.",
}

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
    DATASET_NOT_PLACED = "DatasetNotPlaced"
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
    CACHE_EXPIRED = "CacheExpired"
    CACHE_FAILED = "CacheFailed"
    CACHE_OVER_BUDGET = "CacheOverBudget"
    CACHE_MOUNT_GONE = "CacheMountGone"
    CACHE_ORIGIN_FAILED = "CacheOriginFailed"
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
    DATA_NOT_MOUNTED = "DataNotMounted"
    DATA_MISSING = "DataMissing"
    OTHER_DATA_MOUNTED = "OtherDataMounted"
    DATA_WRITABLE = "DataWritable"
    GPU_NOT_VISIBLE = "GpuNotVisible"
    GPU_COUNT = "GpuCount"
    DRIVER_MISMATCH = "DriverMismatch"
    SHM_LARGE_ENOUGH = "ShmLargeEnough"
    SHM_TOO_SMALL = "ShmTooSmall"
    CONFIG_UNREADABLE = "ConfigUnreadable"
    CHECKPOINT_READABLE = "CheckpointReadable"
    CHECKPOINT_UNREADABLE = "CheckpointUnreadable"
    CHECKPOINT_INCOMPATIBLE = "CheckpointIncompatible"
    RESUME_UNKNOWN = "ResumeUnknown"
    RUNNING = "Running"
    COMPLETED = "Completed"
    PROCESS_FAILED = "ProcessFailed"
    PROCESS_KILLED = "ProcessKilled"
    STOPPED = "Stopped"
    OUT_OF_MEMORY = "OutOfMemory"
    AGENT_LOST = "AgentLost"
    DISK_FULL = "DiskFull"
    START_FAILED = "StartFailed"
    REQUEUE_LOOP = "RequeueLoop"
    RESUME_REFUSED = "ResumeRefused"
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    EVICTED = "Evicted"
    JOB_DELETED = "JobDeleted"
    CANCELLED = "Cancelled"
    ADMISSION_GATED = "AdmissionGated"
    ADMISSION_CHECK_PENDING = "AdmissionCheckPending"
    ADMISSION_CHECK_REJECTED = "AdmissionCheckRejected"
    ADMITTED_NOT_STARTED = "AdmittedNotStarted"
    QUEUE_STOPPED = "QueueStopped"
    QUEUE_MISCONFIGURED = "QueueMisconfigured"
    NOT_MANAGED = "NotManaged"
    WAITS_FOR_PREEMPTION = "WaitsForPreemption"
    GPU_SHORTAGE = "GpuShortage"
    RESOURCE_SHORTAGE = "ResourceShortage"
    NODE_CONSTRAINT = "NodeConstraint"
    SCALE_UP_TRIGGERED = "ScaleUpTriggered"
    GANG_INCOMPLETE = "GangIncomplete"
    VOLUME_UNBOUND = "VolumeUnbound"
    VOLUME_ELSEWHERE = "VolumeElsewhere"
    VOLUME_IN_USE = "VolumeInUse"
    VOLUME_ATTACH_FAILED = "VolumeAttachFailed"
    VOLUME_MOUNT_FAILED = "VolumeMountFailed"
    MOUNT_TIMED_OUT = "MountTimedOut"
    MOUNT_NOT_READY = "MountNotReady"
    MOUNT_POD_PENDING = "MountPodPending"
    MOUNT_LOST = "MountLost"
    CSI_NOT_REGISTERED = "CsiNotRegistered"
    CSI_NODE_DOWN = "CsiNodeDown"
    IMAGE_NOT_FOUND = "ImageNotFound"
    IMAGE_UNAUTHORIZED = "ImageUnauthorized"
    IMAGE_RATE_LIMITED = "ImageRateLimited"
    IMAGE_NAME_INVALID = "ImageNameInvalid"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    NODE_DISK_FULL = "NodeDiskFull"
    CONFIG_MISSING = "ConfigMissing"
    CONFIG_INVALID = "ConfigInvalid"
    PERMISSION_DENIED = "PermissionDenied"
    ADMISSION_DENIED = "AdmissionDenied"
    WEBHOOK_UNAVAILABLE = "WebhookUnavailable"
    NAME_CONFLICT = "NameConflict"
    PREEMPTED = "Preempted"
    EVICTED_DISK = "EvictedDisk"
    EVICTED_MEMORY = "EvictedMemory"
    EVICTED_DRAIN = "EvictedDrain"
    NODE_LOST = "NodeLost"
    POD_DELETED = "PodDeleted"
    OLD_POD_NOT_CONFIRMED_DEAD = "OldPodNotConfirmedDead"
    CRASH_LOOP = "CrashLoop"
    TIMED_OUT = "TimedOut"
    STARTING = "Starting"
    CONTRADICTORY = "Contradictory"
    NAMESPACE_QUOTA = "NamespaceQuotaExceeded"
    CLOUD_QUOTA = "CloudQuotaExceeded"
    CLOUD_CAPACITY = "CloudCapacity"
    DEVICE_FAILED = "DeviceFailed"
    DEVICE_DRIVER_MISSING = "DeviceDriverMissing"
    HELPER_FAILED = "HelperFailed"
    HELPER_STILL_RUNS = "HelperStillRuns"
    DEACTIVATED = "Deactivated"
    SUSPENDED = "Suspended"
    BEING_DELETED = "BeingDeleted"
    UNKNOWN = "Unknown"


SENTENCES: dict[Reason, str] = {
    Reason.NOT_EVALUATED_YET: "Nobody has looked at it yet.",
    Reason.DATASET_UNKNOWN: "No dataset of that name has any version.",
    Reason.DATASET_VERSION_MISSING: "The dataset exists, but not that version.",
    Reason.DATASET_UNTAGGED: "The dataset has versions, but none carries that tag.",
    Reason.DATASET_NOT_READY: "The dataset is being uploaded or checked.",
    Reason.DATASET_NOT_PLACED: "The version cannot be read in the way that the job asks for.",
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
    Reason.CACHE_EXPIRED: "Nobody has used it for long, so it goes first when the cache needs room.",
    Reason.CACHE_FAILED: "Warming failed.",
    Reason.CACHE_OVER_BUDGET: "The plan needs more room than the cache has.",
    Reason.CACHE_MOUNT_GONE: "The mount that jobs read through does not answer.",
    Reason.CACHE_ORIGIN_FAILED: "The object storage behind the cache does not give its bytes.",
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
    Reason.DATA_NOT_MOUNTED: "The folder of the data is no mount, or an empty one.",
    Reason.DATA_MISSING: "The volume with the data is mounted, and the dataset version is not on it.",
    Reason.OTHER_DATA_MOUNTED: "Something else than the dataset version is mounted where it should be.",
    Reason.DATA_WRITABLE: "The data is mounted so that a job could change it.",
    Reason.GPU_NOT_VISIBLE: "A GPU was given on paper, and none can be seen inside.",
    Reason.GPU_COUNT: "Fewer GPUs can be seen than were asked for.",
    Reason.DRIVER_MISMATCH: "The GPU driver and its library do not fit each other.",
    Reason.SHM_LARGE_ENOUGH: "Shared memory (/dev/shm) has the size that is needed.",
    Reason.SHM_TOO_SMALL: "Shared memory (/dev/shm) is smaller than the data loader needs.",
    Reason.CONFIG_UNREADABLE: "A configuration file of the job cannot be read where the job runs.",
    Reason.CHECKPOINT_READABLE: "The checkpoint to continue from opens where the job runs.",
    Reason.CHECKPOINT_UNREADABLE: "The checkpoint to continue from cannot be read where the job runs.",
    Reason.CHECKPOINT_INCOMPATIBLE: "The checkpoint was made with something else than this job uses.",
    Reason.RESUME_UNKNOWN: "Nobody could say where to continue.",
    Reason.RUNNING: "The training process runs.",
    Reason.COMPLETED: "The training process ended with exit code 0.",
    Reason.PROCESS_FAILED: "The training process ended with an error.",
    Reason.STOPPED: "The attempt was stopped from outside; its training did not fail, and the next attempt continues it.",
    Reason.PROCESS_KILLED: "The training process was ended by a signal from outside.",
    Reason.OUT_OF_MEMORY: "The kernel ended the process because memory ran out.",
    Reason.AGENT_LOST: "The agent that watched the process is gone without a word.",
    Reason.DISK_FULL: "A disk is full; whatever waits for it continues automatically once space is free.",
    Reason.START_FAILED: "The process could not be started.",
    Reason.REQUEUE_LOOP: "It was given quota and lost it again and again before its command ran.",
    Reason.RESUME_REFUSED: "No usable checkpoint exists and a cold start was not allowed.",
    Reason.ATTEMPTS_EXHAUSTED: "Every allowed attempt has failed.",
    Reason.EVICTED: "Its quota or its node took it back; nothing was wrong with the command.",
    Reason.JOB_DELETED: "Its Job object was deleted from outside.",
    Reason.CANCELLED: "A person cancelled it.",
    Reason.ADMISSION_GATED: "A gate that another controller owns holds the workload before quota.",
    Reason.ADMISSION_CHECK_PENDING: "Quota is reserved; a check before admission has not answered yet.",
    Reason.ADMISSION_CHECK_REJECTED: "A check before admission said no.",
    Reason.ADMITTED_NOT_STARTED: "The queue admitted it, but the Job is still suspended.",
    Reason.QUEUE_STOPPED: "The queue takes no work at present.",
    Reason.QUEUE_MISCONFIGURED: "The queue refers to something that is missing, or does not cover what is asked.",
    Reason.NOT_MANAGED: "No queue controller has taken the job over.",
    Reason.WAITS_FOR_PREEMPTION: "Others are being stopped to make room for it.",
    Reason.GPU_SHORTAGE: "No node that suits it has enough GPUs free.",
    Reason.RESOURCE_SHORTAGE: "No node that suits it has enough processor, memory or room for pods free.",
    Reason.NODE_CONSTRAINT: "Taints, selectors or affinity rule out the nodes.",
    Reason.SCALE_UP_TRIGGERED: "The autoscaler is adding nodes for it.",
    Reason.GANG_INCOMPLETE: "Its pods start together, and not all of them can.",
    Reason.VOLUME_UNBOUND: "A volume claim is missing or not bound.",
    Reason.VOLUME_ELSEWHERE: "Its volume can only be used where the pod cannot go.",
    Reason.VOLUME_IN_USE: "Its volume is attached to another node or held by another pod.",
    Reason.VOLUME_ATTACH_FAILED: "A volume cannot be attached to the node.",
    Reason.VOLUME_MOUNT_FAILED: "A volume cannot be mounted on the node.",
    Reason.MOUNT_TIMED_OUT: "A volume was not mounted in time, and nothing said why.",
    Reason.MOUNT_NOT_READY: "The mount process started, but did not become ready in time.",
    Reason.MOUNT_POD_PENDING: "The pod that serves the volume's mount is not running.",
    Reason.MOUNT_LOST: "The process behind a mount is gone.",
    Reason.CSI_NOT_REGISTERED: "The storage driver is not registered on the node.",
    Reason.CSI_NODE_DOWN: "The storage driver on the node does not answer.",
    Reason.IMAGE_NOT_FOUND: "The image does not exist in its registry.",
    Reason.IMAGE_UNAUTHORIZED: "The registry refuses the credentials, or the image does not exist.",
    Reason.IMAGE_RATE_LIMITED: "The registry limits how often images are pulled.",
    Reason.IMAGE_NAME_INVALID: "The image's name is not valid.",
    Reason.IMAGE_PULL_FAILED: "The image cannot be pulled.",
    Reason.NODE_DISK_FULL: "The node has no room on its disk.",
    Reason.CONFIG_MISSING: "A ConfigMap, Secret or key that the pod names does not exist.",
    Reason.CONFIG_INVALID: "The container cannot be started as it is configured.",
    Reason.PERMISSION_DENIED: "The identity that was used may not do this.",
    Reason.ADMISSION_DENIED: "The cluster refuses to create the object.",
    Reason.WEBHOOK_UNAVAILABLE: "A webhook that must be asked does not answer.",
    Reason.NAME_CONFLICT: "An object of that name exists already.",
    Reason.PREEMPTED: "It was stopped to make room for other work.",
    Reason.EVICTED_DISK: "The node stopped it because disk ran out, or it used more disk than it may.",
    Reason.EVICTED_MEMORY: "The node stopped it because the node's memory or processes ran out.",
    Reason.EVICTED_DRAIN: "It was moved off its node.",
    Reason.NODE_LOST: "Its node does not answer, shut down or is gone.",
    Reason.POD_DELETED: "Its pod was deleted.",
    Reason.OLD_POD_NOT_CONFIRMED_DEAD: "An earlier pod may still be writing.",
    Reason.CRASH_LOOP: "The container ends soon after each start.",
    Reason.TIMED_OUT: "A time limit has passed.",
    Reason.STARTING: "The container is being set up.",
    Reason.NAMESPACE_QUOTA: "A ResourceQuota of the namespace leaves no room.",
    Reason.CLOUD_QUOTA: "The cloud account's own quota is used up.",
    Reason.CLOUD_CAPACITY: "The cloud cannot add a node at present.",
    Reason.DEVICE_FAILED: "A device of the node is broken.",
    Reason.DEVICE_DRIVER_MISSING: "The driver of the devices is not registered on the node.",
    Reason.HELPER_FAILED: "A container beside the training ended with an error; the training itself did not.",
    Reason.HELPER_STILL_RUNS: "The training ended; a container beside it keeps the pod from ending.",
    Reason.DEACTIVATED: "It was taken out of the queue and does not come back by itself.",
    Reason.SUSPENDED: "It is suspended, and no queue holds it.",
    Reason.BEING_DELETED: "It is being deleted, and something holds it until then.",
    Reason.CONTRADICTORY: "The objects say things that cannot all be true.",
    Reason.UNKNOWN: "Not known; the raw facts are on record.",
}

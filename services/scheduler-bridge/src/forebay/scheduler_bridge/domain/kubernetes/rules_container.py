"""Rules for containers: images, configuration, starts and ends."""

from __future__ import annotations

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, pattern
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause

_PULL = r"(?=.*(?:pull|resolve|manifest|registry))"
_IMAGE = r"(?:.*?image:? \"?(?P<image>[\w.\-]+(?::\d+)?/[\w./\-]+(?:[:@][\w.:\-]+)?)\"?)?"
_WAIT_OR = "correct the name and tag of {image}, or push it"

IMAGE_RULES: tuple[MessageRule, ...] = (
    pattern(
        "image-name",
        Cause.IMAGE,
        "the image name is not valid",
        r"couldn't parse image (?:name|reference)|invalid reference format|invalid image ?name",
        tokens="InvalidImageName",
        code=Reason.IMAGE_NAME_INVALID,
        do="correct the image's name: lower case, no spaces, one tag",
        either=True,
        weight=15,
    ),
    pattern(
        "image-never",
        Cause.IMAGE,
        "the image is not on the node, and may not be pulled",
        r"is not present with pull policy of never",
        tokens="ErrImageNeverPull",
        do="load the image onto the node, or let it be pulled (imagePullPolicy)",
        either=True,
        weight=15,
    ),
    pattern(
        "image-rate",
        Cause.IMAGE,
        "the registry limits how often images are pulled",
        r"(?=.*(?:pull|image|manifest|registry)).*(?:toomanyrequests|too many requests|rate limit|pull qps exceeded|\b429\b)",
        code=Reason.IMAGE_RATE_LIMITED,
        do="wait, log in to the registry, or use a mirror",
        weight=15,
    ),
    pattern(
        "image-disk",
        Cause.IMAGE,
        "the node has no room for the image",
        r"(?=.*(?:pull|image|layer|unpack|extract)).*no space left on device",
        code=Reason.NODE_DISK_FULL,
        do="free disk on the node, or make the image smaller",
        weight=15,
    ),
    pattern(
        "image-auth",
        Cause.IMAGE,
        "the registry refuses the credentials for {image}, or it does not exist",
        _PULL
        + _IMAGE
        + r".*(?:unauthorized|authentication required|pull access denied|access (?:to the resource )?(?:is )?denied|\b401\b|\b403\b|forbidden"
        r"|no basic auth credentials|may require (?:'docker login'|authorization)|insufficient_scope|authorization failed|denied: )",
        tokens="ImagePullBackOff ErrImagePull Failed BackOff FailedToRetrieveImagePullSecret RegistryUnavailable Pulling FailedPullImage",
        code=Reason.IMAGE_UNAUTHORIZED,
        do="add imagePullSecrets with the right credentials, or correct the name of {image}",
        weight=15,
    ),
    pattern(
        "image-missing",
        Cause.IMAGE,
        "{image} does not exist in its registry",
        _PULL
        + _IMAGE
        + r".*(?:manifest unknown|manifest for \S+ not found|: not found|\bnotfound\b|does not exist|no matching manifest|no match for platform|name unknown)",
        tokens="ImagePullBackOff ErrImagePull Failed BackOff",
        code=Reason.IMAGE_NOT_FOUND,
        do=_WAIT_OR,
        weight=15,
    ),
    pattern(
        "image-secret",
        Cause.IMAGE,
        "a pull secret that the pod names cannot be read",
        r"unable to retrieve some image pull secrets",
        tokens="FailedToRetrieveImagePullSecret",
        code=Reason.IMAGE_UNAUTHORIZED,
        do="create the secret in the job's namespace, or correct its name",
        either=True,
        weight=45,
    ),
    pattern(
        "image-pull",
        Cause.IMAGE,
        "the image cannot be pulled",
        r"failed to pull (?:and unpack )?image|back-?off pulling image|errimagepull|imagepullbackoff|error pulling image|failed to (?:resolve reference|inspect image|copy: httpreadseeker)"
        r"|image (?:signature|verification)|failed to (?:extract layer|register layer)",
        tokens="ImagePullBackOff ErrImagePull RegistryUnavailable ImageInspectError SignatureValidationFailed ImageVolumeMountFailed FailedPullImage FAILED_IMAGE_PULL"
        " ErrImageVerification ImagePullFailed ImagePullError InspectFailed",
        weight=25,
        either=True,
    ),
    pattern(
        "image-pulling",
        Cause.OTHER,
        "the image is being pulled",
        r"^pulling image|^successfully pulled image|already present on machine",
        tokens="Pulling Pulled",
        code=Reason.STARTING,
        layer=Layer.IMAGE,
        do=LATER,
        weight=70,
        either=True,
    ),
)

_START = "CreateContainerConfigError CreateContainerError RunContainerError StartError ContainerCannotRun Failed FailedStart InvalidConfig ConfigError"

CONFIG_RULES: tuple[MessageRule, ...] = (
    pattern(
        "runtime-race",
        Cause.OTHER,
        "the node's container runtime is busy with an earlier try",
        r"failed to reserve (?:container|sandbox) name|is reserved for \"",
        code=Reason.STARTING,
        layer=Layer.CONFIG,
        do=f"{LATER}; if it stays, restart the container runtime of that node",
        weight=60,
    ),
    pattern(
        "config-missing",
        Cause.CONFIG,
        "the pod names {name}, which does not exist",
        r"(?P<name>(?:configmap|secret)s? \"[^\"]+\") not found",
        r"couldn't find key (?P<name>\S+ in (?:configmap|secret) \S+)",
        r"missing required configmaps:? (?P<name>.*)",
        r"(?P<name>(?:resourceclaim(?:template)?|device ?class|runtimeclass)(?:s|es)?(?:\.[\w.]+)? \"?[\w.\-/]+\"?) (?:not found|does not exist)",
        code=Reason.CONFIG_MISSING,
        do="create {name} in the job's namespace, or correct its name in the job",
        weight=15,
    ),
    pattern(
        "command-missing",
        Cause.CONFIG,
        "the container's command cannot be executed: {name}",
        r"(?P<name>exec:? \"?[^\"]+\"?: (?:executable file not found in \$path|no such file or directory|permission denied|stat .*no such file))",
        r"(?P<name>exec format error|executable file not found|no command specified|is a directory: unknown)",
        r"(?P<name>starting container process caused.*?(?:not found|no such file|permission denied))",
        r"(?P<name>chdir to cwd .*)",
        code=Reason.COMMAND_NOT_FOUND,
        do="correct the command, or use an image (of the node's processor architecture) that has it",
        weight=15,
        unless=r"transport endpoint|probe|kubelet/pods",
    ),
    pattern(
        "root-forbidden",
        Cause.CONFIG,
        "the pod must not run as root, but its image does",
        r"runasnonroot and image (?:will run as root|has non-numeric user)|image will run as root",
        do="set runAsUser in the pod's securityContext, or use an image with a numeric user",
        weight=15,
    ),
    pattern(
        "runtime-missing",
        Cause.CONFIG,
        "the node does not know the container runtime that the pod asks for",
        r"no runtime for \"?[\w.\-]+\"? is configured|runtimeclass(?:es)?(?:\.[\w.]+)? \"?[\w.\-]+\"? not found|unknown runtime handler",
        weight=20,
    ),
    pattern(
        "config-error",
        Cause.CONFIG,
        "the container cannot be started as it is configured",
        r"invalid (?:environment|mount|volume|spec|capability|security)|cannot find volume \"?[\w.\-]+\"? to mount|are you trying to mount a directory onto a file",
        r"nvidia-container-cli|failed to (?:create shim task|start container|create containerd task|create containerd container|generate (?:container|spec))",
        r"failed to sync (?:configmap|secret) cache",
        tokens="CreateContainerConfigError CreateContainerError RunContainerError StartError ContainerCannotRun InvalidConfig ConfigError"
        " InvalidSpec ValidationFailed InvalidEnvironmentVariableNames FAILED_BACKEND_CONFIG",
        weight=30,
        either=True,
    ),
)

CONTAINER_RULES: tuple[MessageRule, ...] = (
    pattern(
        "sandbox",
        Cause.OTHER,
        "the node cannot set up the pod's network or sandbox",
        r"failed to (?:create pod sandbox|setup network for sandbox|set up sandbox)|network plugin|cni ",
        tokens="FailedCreatePodSandBox NetworkNotReady FailedCreatePodContainer SandboxChanged",
        layer=Layer.NODE,
        do="look at the network plugin of the node",
        weight=35,
        either=True,
    ),
    pattern(
        "crash-loop",
        Cause.CRASH,
        "the container ends soon after each start and is started again",
        r"back-?off \S*\s*restarting failed container|failed liveness probe|failed startup probe|liveness probe failed|startup probe failed",
        tokens="CrashLoopBackOff",
        code=Reason.CRASH_LOOP,
        weight=30,
        either=True,
    ),
    pattern(
        "attempts-used-up",
        Cause.CRASH,
        "the job failed as often as it may",
        r"backoff ?limit|reached the specified backoff|reached (?:max(?:imum)?|the specified) (?:restarts?|retries|failed)|job has failed (?:too many|more than)|max ?restarts"
        r"|\d+ (?:worker|master|launcher|head|ps|chief)\w* replica\(?s?\)? failed|failed due to one or more job failures|is failed because|has failed indexes",
        tokens="BackoffLimitExceeded PodFailurePolicy FailedIndexes MaxFailedIndexesExceeded JobsFailed FailedJobs ReachedMaxRestarts JobFailed PyTorchJobFailed AppFailed"
        " BackoffLimitExceededPerIndex ExceededRetries RayJobFailed MPIJobFailed TFJobFailed TrainJobFailed",
        code=Reason.ATTEMPTS_EXHAUSTED,
        weight=35,
        either=True,
    ),
    pattern(
        "pod-failed-recovering",
        Cause.CRASH,
        "a pod of the job failed; it waits for its replacement",
        r"at least one pod has failed",
        tokens="WaitForRecovery",
        weight=45,
        either=True,
    ),
    pattern(
        "not-ready-yet",
        Cause.OTHER,
        "its pods are being started",
        r"not all pods are ready|containers with (?:unready|incomplete) status|^\W*readiness probe failed|waiting for pods",
        tokens="WaitForStart ContainerCreating PodInitializing ContainersNotReady ContainersNotInitialized Unhealthy Started Created Scheduled PodsReady",
        code=Reason.STARTING,
        do="look at the pod's events if it stays like this",
        weight=80,
        either=True,
    ),
    pattern(
        "scheduling-gated",
        Cause.ADMISSION_CHECK,
        "a scheduling gate holds the pod back from the scheduler",
        r"scheduling is blocked due to non-empty scheduling gates",
        tokens="SchedulingGated",
        code=Reason.ADMISSION_GATED,
        layer=Layer.QUOTA,
        do="look at the pod's schedulingGates and at who removes them",
        weight=45,
        either=True,
    ),
    pattern(
        "completed",
        Cause.OTHER,
        "it has ended well",
        r"job (?:completed|succeeded)|job finished successfully|reached expected number of succeeded pods",
        tokens="Completed Complete Succeeded JobFinished CompletionsReached SuccessCriteriaMet",
        code=Reason.COMPLETED,
        do="nothing",
        weight=60,
        either=True,
    ),
    pattern(
        "out-of-memory-text",
        Cause.OOM,
        "the process ran out of memory",
        r"\bmemoryerror\b|std::bad_alloc|dataloader worker .*killed",
        weight=30,
    ),
    pattern(
        "killed",
        Cause.OTHER,
        "the container is being stopped",
        r"^stopping container",
        tokens="Killing",
        do="look at what stopped it: eviction, preemption or deletion",
        weight=90,
        either=True,
    ),
)

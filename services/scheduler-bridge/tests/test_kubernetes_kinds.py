"""Truths about kinds of messages, each in several forms that components print: what one means, all of its kind mean."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Message

HEAD = "0/4 nodes are available: "
TAIL = " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
SETUP = 'MountVolume.SetUp failed for volume "v" : rpc error: code = Internal desc = '
UNMOUNTED = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data kube-api-access]: "
MOUNTED = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount"
UNSEEN = f'Error: failed to generate container "5" spec: failed to generate spec: failed to stat "{MOUNTED}": stat {MOUNTED}: '
RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "


@dataclass(frozen=True, slots=True)
class Kind:
    """One truth, the cause that follows, and (where, reason, text) that all say it."""

    truth: str
    cause: Cause
    said: tuple[tuple[str, str, str], ...]


KINDS = (
    Kind(
        "a volume whose node affinity no node meets cannot be used there, in old words and new",
        Cause.VOLUME_ATTACH,
        (
            ("event", "FailedScheduling", f"{HEAD}4 node(s) had volume node affinity conflict.{TAIL}"),
            ("condition", "Unschedulable", f"{HEAD}4 node(s) didn't match PersistentVolume's node affinity.{TAIL}"),
            (
                "condition",
                "Unschedulable",
                f"{HEAD}1 node(s) were unschedulable, 3 node(s) didn't match PersistentVolume's node affinity.",
            ),
        ),
    ),
    Kind(
        "a claim that is missing or unbound is the cause, also when the node is who says it",
        Cause.VOLUME_UNBOUND,
        (
            ("event", "FailedMount", f"{UNMOUNTED}error processing PVC lab/data: PVC is not bound"),
            ("event", "FailedMount", f"{UNMOUNTED}error processing PVC lab/data: PVC is being deleted"),
            (
                "event",
                "FailedMount",
                f'{UNMOUNTED}error processing PVC lab/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found',
            ),
            (
                "event",
                "FailedMount",
                'MountVolume.SetUp failed for volume "data": persistentvolumeclaim "data" not found',
            ),
            ("condition", "Unschedulable", f'{HEAD}persistentvolume "pv-1" not found.{TAIL}'),
            ("event", "PVCError", 'Failed to create PVC, err: persistentvolumeclaims "out" could not be found'),
        ),
    ),
    Kind(
        "what hinders making a volume is its claim's trouble, whatever the storage says about attaching or quotas",
        Cause.VOLUME_UNBOUND,
        tuple(
            ("event", "ProvisioningFailed", f'failed to provision volume with StorageClass "fast": {why}')
            for why in (
                "rpc error: code = Internal desc = VolumeLimitExceeded: Maximum number of volumes allowed (20) exceeded",
                "rpc error: code = Internal desc = UnauthorizedOperation: You are not authorized to perform this",
                "error generating accessibility requirements: no topology key found on CSINode gpu-1",
            )
        ),
    ),
    Kind(
        "a mount that fails because its mount pod has no place is a failed mount of the pod that waits",
        Cause.VOLUME_MOUNT,
        (
            ("event", "FailedMount", f"{SETUP}mount pod jfs-1 is not ready: {HEAD}4 Insufficient memory."),
            ("event", "FailedMount", f"{SETUP}fuse pod x is pending: {HEAD}4 node(s) had untolerated taint(s)."),
            ("event", "VolumeConditionAbnormal", "Volume data: volume is inaccessible from node gpu-2"),
        ),
    ),
    Kind(
        "a mounted folder that the node cannot look at is a lost mount, whatever the kernel calls it",
        Cause.VOLUME_MOUNT,
        tuple(
            ("event", "Failed", f"{UNSEEN}{why}")
            for why in ("transport endpoint is not connected", "host is down", "required key not available")
        ),
    ),
    Kind(
        "a volume that the node's status does not show as attached is not attached",
        Cause.VOLUME_ATTACH,
        (
            ("event", "FailedMount", 'Volume not attached according to node status for volume "pvc-5"'),
            ("event", "FailedMount", 'Volume not yet attached according to node status for volume "pvc-5"'),
        ),
    ),
    Kind(
        "devices that a claim got and the node cannot prepare are there: the node's driver is not, which is no shortage",
        Cause.CONFIG,
        (
            (
                "event",
                "FailedPrepareDynamicResources",
                "Failed to prepare dynamic resources: DRA driver gpu.nvidia.com is not registered",
            ),
            (
                "event",
                "FailedPrepareDynamicResources",
                "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            ),
        ),
    ),
    Kind(
        "memory that cannot be had is out of memory, in every language a process speaks",
        Cause.OOM,
        (
            ("containerStatus", "Error", "java.lang.OutOfMemoryError: Java heap space"),
            (
                "containerStatus",
                "Error",
                "ray.exceptions.OutOfMemoryError: Task was killed: the node running low on memory",
            ),
            (
                "containerStatus",
                "Error",
                "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
            ),
            ("containerStatus", "Error", "numpy._ArrayMemoryError: Unable to allocate 29.8 GiB for an array"),
            ("containerStatus", "StartError", f"{RUNC}container init was OOM-killed (memory limit too low?): unknown"),
        ),
    ),
    Kind(
        "a reason that ends in a timeout or a deadline is one, whatever stands before it",
        Cause.TIMEOUT,
        (
            ("jobCondition", "PreRunningDeadlineExceeded", "The RayJob did not reach Running"),
            ("jobCondition", "JobStatusCheckTimeoutExceeded", "The status check exceeded timeout of 300s"),
            ("jobCondition", "InitializingTimeout", "it never became ready"),
            ("jobCondition", "TaskRunTimeout", 'TaskRun "train" failed to finish within "1h0m0s"'),
            ("jobCondition", "Failed", "Max duration limit exceeded"),
        ),
    ),
    Kind(
        "a job that is started again after a failure of its own has crashed",
        Cause.CRASH,
        (
            ("event", "PyTorchJobRestarting", "PyTorchJob train is restarting because 1 Worker replica(s) failed."),
            (
                "event",
                "RestartJobSetFailurePolicyAction",
                "applying RestartJobSet failure policy action (first failed job: w-0)",
            ),
            ("jobCondition", "FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action"),
        ),
    ),
    Kind(
        "who is moved off a node by a person or a controller was evicted, not lost",
        Cause.EVICTED_NODE,
        (
            ("event", "EvictedByVPA", "Pod was evicted by VPA Updater to apply resource recommendation."),
            ("jobCondition", "MPIJobEvicted", "1/8 workers are evicted"),
            ("event", "FailedDraining", "Failed to drain node, 7 pods are waiting to be evicted"),
            ("event", "TerminationGracePeriodExpiring", "All pods will be deleted by 2026-03-01T10:00:00Z"),
        ),
    ),
    Kind(
        "a node that cannot be reached is lost, whoever ends the pod for it",
        Cause.NODE_LOST,
        (
            (
                "event",
                "KueueForcefullyDeleted",
                "Pod forcefully terminated after 1m0s grace period due to unreachable node `gpu-3`",
            ),
            (
                "condition",
                "NodeFailures",
                "Workload was evicted as there was no replacement for unhealthy node(s): gpu-3",
            ),
        ),
    ),
    Kind(
        "what does not fit in a quota or a queue waits for quota",
        Cause.QUOTA,
        (
            ("condition", "Pending", "Workload didn't fit in the remaining quota"),
            (
                "event",
                "PodUnschedulable",
                "Request 'a' does not fit in queue 'root.lab' (requested map[cpu:8], available map[cpu:4])",
            ),
            (
                "event",
                "PodUnschedulable",
                "Request 'a' exceeds the available user quota (requested map[cpu:8], available map[])",
            ),
            ("event", "FailedScheduling", "0/3 nodes are available: 3 ResourceQuotaNotFit."),
        ),
    ),
    Kind(
        "a quota whose scopes let nothing through is a quota",
        Cause.QUOTA,
        (
            (
                "event",
                "FailedCreate",
                'Error creating: pods "x" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]',
            ),
        ),
    ),
    Kind(
        "an event that only repeats a reason means what the reason means",
        Cause.IMAGE,
        (
            ("event", "Failed", "Error: ErrImageNeverPull"),
            ("event", "Failed", "Error: ImagePullBackOff"),
            ("event", "Failed", "Error: InvalidImageName"),
        ),
    ),
    Kind(
        "what a mount reads its secrets from is missing like a Secret is",
        Cause.CONFIG,
        (
            ("event", "FailedMount", 'MountVolume.SetUp failed for volume "c" : configmap "train" not found'),
            (
                "event",
                "FailedMount",
                f'{SETUP}failed to get secretproviderclass, error: SecretProviderClass.secrets-store.csi.x-k8s.io "vault" not found',
            ),
        ),
    ),
    Kind(
        "an object that the rules of its kind forbid is wrong, whoever finds it out",
        Cause.CONFIG,
        (
            (
                "condition",
                "Inadmissible",
                'spec.podSets[0].template.spec.containers[0].resources: Invalid value: "1500m": must be an integer',
            ),
            (
                "event",
                "ValidationError",
                "Found validation errors: spec.mpiReplicaSpecs[Worker].replicas: Required value",
            ),
            ("event", "ErrWorkloadCompose", "could not construct workload: invalid topology request annotation"),
            ("apiError", "BadRequest", "error validating data: ValidationError(Job.spec): unknown field"),
            (
                "apiError",
                "NotFound",
                "the server could not find the requested resource (post trainjobs.trainer.kubeflow.org)",
            ),
        ),
    ),
    Kind(
        "a container runtime that the node does not have is configuration, in the words of each runtime",
        Cause.CONFIG,
        (
            (
                "event",
                "FailedCreate",
                'Error creating: pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            ),
            ("event", "Failed", "Error: Error response from daemon: unknown or invalid runtime name: nvidia"),
            (
                "event",
                "FailedCreatePodSandBox",
                'Failed to create pod sandbox: rpc error: code = Unknown desc = RuntimeHandler "runsc" not supported',
            ),
        ),
    ),
    Kind(
        "whom the API forbids to set what a controller needs lacks a permission, and no policy denied the pod",
        Cause.PERMISSION,
        (
            (
                "event",
                "FailedCreate",
                'Error creating: pods "x" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can\'t set finalizers on: , <nil>',
            ),
        ),
    ),
    Kind(
        "nodes of plugins beside the scheduler's own are short of compute or unsuited like any other",
        Cause.CPU_MEM_SHORTAGE,
        (
            ("event", "FailedScheduling", f"{HEAD}4 node(s) cpu usage exceed threshold."),
            ("event", "FailedScheduling", f"{HEAD}4 node(s) requested cpus not multiple cpus per core."),
            ("condition", "Infeasible", "Node didn't have enough capacity: cpu, requested: 64000, capacity: 32000"),
        ),
    ),
    Kind(
        "affinity of any kind that no node meets is a constraint",
        Cause.AFFINITY_TAINT,
        (
            ("event", "FailedScheduling", f"{HEAD}4 node(s) no reservations match reservation affinity."),
            ("event", "FailedScheduling", f"{HEAD}4 node(s) didn't satisfy plugin(s) [NodeAffinity] simultaneously."),
            ("event", "FailedScheduling", f"{HEAD}4 node is filtered out by the prefilter result."),
            (
                "event",
                "FailedScheduling",
                "Failed to schedule pod, incompatible requirements, key zone, zone In [c] not in zone In [a b]",
            ),
            ("condition", "ExclusivePlacementViolation", "Pod violated JobSet exclusive placement policy"),
        ),
    ),
)
CASES = [(kind, said) for kind in KINDS for said in kind.said]


def forms(text: str) -> tuple[str, ...]:
    """As printed, as events combine it, with the quotes of a text inside JSON, and over several lines."""
    return text, f"(combined from similar events): {text}", text.replace('"', '\\"'), text.replace(": ", ":\n\t")


@pytest.mark.parametrize(("kind", "said"), CASES, ids=[f"{kind.cause}-{said[1]}" for kind, said in CASES])
def test_all_of_a_kind_mean_the_same(kind: Kind, said: tuple[str, str, str]) -> None:
    """The cause follows from the grammar, however the text came here, and there is a next step."""
    where, reason, text = said
    for form in forms(text):
        found = classify(Message(where=where, reason=reason, text=form))
        assert (found.cause, bool(found.next_action)) == (kind.cause, True), (kind.truth, found.rule, form)


def test_a_cache_that_was_not_filled_in_time_is_no_missing_secret_and_a_missing_one_is() -> None:
    """The first passes by itself; the second needs somebody."""
    slow = classify(Message(where="event", reason="FailedMount", text="failed to sync secret cache: timed out waiting"))
    gone = classify(
        Message(where="event", reason="FailedMount", text='failed to sync secret cache: secret "s3" not found')
    )
    assert (slow.cause, slow.reason) == (Cause.OTHER, Reason.STARTING)
    assert (gone.cause, gone.reason) == (Cause.CONFIG, Reason.CONFIG_MISSING)


def test_a_cloud_without_machines_is_a_gpu_shortage_when_its_machines_carry_gpus() -> None:
    """The group's or the machine's name tells, where no resource is named."""
    said = "Scale-up failed for group {}: GCE_STOCKOUT: the zone does not have enough resources"
    found = {
        name: classify(Message(where="event", reason="FailedToScaleUpGroup", text=said.format(name))).cause
        for name in ("gke-a3-mega-1", "pool-standard_nc24ads_a100_v4", "gke-n2-standard-8", "a1-highmem")
    }
    assert list(found.values()) == [Cause.GPU_SHORTAGE, Cause.GPU_SHORTAGE, *[Cause.CPU_MEM_SHORTAGE] * 2]


HAZARDS = (
    "oom-killed-test",
    "quota-exceeded",
    "preempted-by-us",
    "gpu-timeout",
    "image-pull-test",
    "volume-mount-check",
    "disk-pressure",
    "secret-not-found",
)
"""What people call their things."""


@pytest.mark.parametrize(
    ("cause", "reason", "text"),
    [
        (Cause.CONFIG, "Failed", 'Error: secret "{}" not found'),
        (Cause.CONFIG, "Failed", f'Error: {RUNC}exec: "{{}}": executable file not found in $PATH: unknown'),
        (Cause.OTHER, "FailedCreatePodSandBox", 'Failed to create pod sandbox: failed to setup network: plugin type="{}" failed'),
        (Cause.TIMEOUT, "Failed", 'TaskRun "{}" failed to finish within "1h0m0s"'),
        (Cause.VOLUME_UNBOUND, "FailedScheduling", f'{HEAD}persistentvolumeclaim "{{}}" not found.{TAIL}'),
        (Cause.CONFIG, "FailedScheduling", f'{HEAD}resourceclaim "{{}}" not found.{TAIL}'),
        (Cause.AFFINITY_TAINT, "FailedScheduling", f"{HEAD}4 node(s) had untolerated taint {{{{team: {{}}}}}}.{TAIL}"),
        (Cause.VOLUME_MOUNT, "FailedMount", 'MountVolume.SetUp failed for volume "{}" : mount failed: exit status 32'),
        (Cause.ADMISSION_DENIED, "FailedCreate", 'Error creating: pods "{}" is forbidden: pod rejected by plugin'),
        (Cause.PERMISSION, "FailedCreate", 'pods is forbidden: User "u" cannot create resource "pods" in the namespace "{}"'),
        (Cause.CRASH, "FailedSync", 'Error syncing pod, skipping: failed to "StartContainer" for "{}" with CrashLoopBackOff'),
        (Cause.CPU_MEM_SHORTAGE, "FailedScheduling", 'Failed to schedule pod, all available instance types exceed limits for nodepool: "{}"'),
    ],
)  # fmt: skip
def test_no_name_decides(cause: Cause, reason: str, text: str) -> None:
    """A Secret that is called `oom-killed-test` killed nobody, and its name is still told."""
    for name in HAZARDS:
        found = classify(Message(where="event", reason=reason, text=text.format(name)))
        assert found.cause == cause, (name, found.rule)
    assert (
        "secret-not-found"
        in classify(Message(where="event", reason="Failed", text='secret "secret-not-found" not found')).sentence
    )


@pytest.mark.parametrize(
    ("reason", "text", "about"),
    [
        ("Scheduled", "Successfully assigned lab/train-0 to gpu-1", "Pod"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "Node DiskPressure=False"),
        ("NodeHasSufficientMemory", "Node gpu-1 status is now: NodeHasSufficientMemory", "Node"),
        ("Ready", "Can admit new workloads", "ClusterQueue Active=True"),
        ("Active", "The admission check is active", "AdmissionCheck Active=True"),
        ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped", "Workload Requeued=True"),
        ("TaintManagerEviction", "Cancelling deletion of Pod lab/train-0", "Pod"),
        ("ExternalExpanding", "waiting for an external controller to expand this PVC", "PersistentVolumeClaim"),
        ("BackoffFinished", "The workload backoff was finished", "Workload Requeued=True"),
    ],
)
def test_good_news_is_no_reason(reason: str, text: str, about: str) -> None:
    """What controllers say when all goes its way, or is mended, accuses nobody."""
    assert classify(Message(where="event", reason=reason, text=text, object=about)).cause is Cause.OTHER


@pytest.mark.parametrize(
    ("reason", "text", "tells"),
    [
        ("FailedMount", f"{SETUP}Could not mount juicefs: NOAUTH Authentication required", "the volume v cannot be mounted: Could not mount juicefs: NOAUTH Authentication required"),
        ("FailedAttachVolume", 'AttachVolume.Attach failed for volume "v" : rpc error: code = NotFound desc = volume vol-1 not found', "the volume v cannot be attached to the node: volume vol-1 not found"),
        ("StartError", f"{RUNC}unable to start container process: error during container init: open /x: not there", "error during container init: open /x: not there"),
        ("FlavorNotFound", "Can't admit new workloads: references missing ResourceFlavor(s): h200.", "references missing ResourceFlavor(s): h200"),
        ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 9000, capacity: 9500", "too little cpu was left there (1000 asked, 9500 in all)"),
        ("FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed.", "the pull secret regcred"),
        ("FailedScheduling", f"{HEAD}4 cannot allocate all claims.", "4 of 4 nodes could take the pod but have no room for it (cannot allocate all claims)"),
    ],
)  # fmt: skip
def test_the_sentence_tells_what_the_message_itself_tells(reason: str, text: str, tells: str) -> None:
    """Not only that a mount failed: why, without the names of the layers that passed it on."""
    assert tells in classify(Message(where="event", reason=reason, text=text)).sentence


def test_an_inactive_queue_is_mended_not_started() -> None:
    """Only one that was stopped is started again."""
    stopped, lacks = (
        classify(Message(where="condition", reason=reason, text=f"Can't admit new workloads: {text}"))
        for reason, text in (
            ("Stopped", "is stopped."),
            ("TopologyNotFound", 'there is no Topology "a" for TAS flavor "b".'),
        )
    )
    assert (stopped.reason, lacks.reason) == (Reason.QUEUE_STOPPED, Reason.QUEUE_MISCONFIGURED)
    assert "start it again" in stopped.next_action
    assert "start it again" not in lacks.next_action
    full = classify(Message(where="event", reason="FailedScheduling", text=f"{HEAD}4 node(s) exceed max volume count."))
    assert "leave these nodes" in full.next_action

"""Messages as the components print them, with their true cause. Written from the formats of the sources, one per form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    cause: str
    reason: str
    text: str
    where: str = "event"
    code: int | None = None
    object: str = ""


def scheduler(cause: str, text: str) -> Line:
    return Line(cause, "Unschedulable", text, "condition")


SCHEDULER = (
    scheduler(
        "gpu_shortage",
        "0/8 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 7 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/8 nodes are available: 1 Preemption is not helpful for scheduling, 7 No preemption victims found for incoming pod.",
    ),
    scheduler(
        "gpu_shortage",
        "0/12 nodes are available: 3 node(s) had untolerated taint(s), 4 Insufficient amd.com/gpu, 5 node(s) didn't match Pod's node affinity/selector. still not schedulable, preemption: 0/12 nodes are available: 4 No preemption victims found for incoming pod, 8 Preemption is not helpful for scheduling.",
    ),
    scheduler("gpu_shortage", "0/4 nodes are available: 4 Insufficient nvidia.com/mig-3g.40gb."),
    scheduler(
        "gpu_shortage",
        "0/4 nodes are available: 1 Insufficient memory, 4 Insufficient huawei.com/Ascend910. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod..",
    ),
    scheduler("gpu_shortage", "0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu."),
    scheduler(
        "gpu_shortage",
        "0/3 nodes are available: 1 cannot allocate all claims, 2 node(s) had untolerated taint(s). still not schedulable, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    ),
    scheduler("gpu_shortage", "0/3 nodes are available: 3 CardInsufficientMemory."),
    scheduler(
        "cpu_mem_shortage",
        "0/6 nodes are available: 2 Insufficient memory, 4 node(s) didn't match Pod's node affinity/selector.",
    ),
    scheduler(
        "cpu_mem_shortage",
        "0/4 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling.",
    ),
    scheduler(
        "cpu_mem_shortage",
        "0/5 nodes are available: 5 Too many pods. preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod.",
    ),
    scheduler("cpu_mem_shortage", "0/2 nodes are available: 2 Insufficient ephemeral-storage."),
    scheduler(
        "cpu_mem_shortage",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu, 2 Insufficient memory.",
    ),
    scheduler(
        "affinity_taint",
        "0/10 nodes are available: 10 node(s) didn't match Pod's node affinity/selector, 4 Insufficient cpu.",
    ),
    scheduler(
        "affinity_taint",
        "0/5 nodes are available: 1 node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate, 4 node(s) had taint {gpu-team: vision}, that the pod didn't tolerate.",
    ),
    scheduler(
        "affinity_taint",
        "0/3 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    ),
    scheduler(
        "affinity_taint",
        "0/3 nodes are available: 1 node(s) had taints that the pod didn't tolerate, 2 node(s) didn't match node selector.",
    ),
    scheduler(
        "affinity_taint",
        "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
    ),
    scheduler(
        "affinity_taint",
        "0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 3 node(s) didn't satisfy existing pods anti-affinity rules.",
    ),
    scheduler("affinity_taint", "0/1 nodes are available: 1 node(s) didn't match the requested node name."),
    scheduler(
        "affinity_taint", "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    ),
    scheduler(
        "node_lost",
        "0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 3 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
    ),
    scheduler(
        "node_lost",
        "0/2 nodes are available: 2 node(s) had taint {node.kubernetes.io/not-ready: }, that the pod didn't tolerate.",
    ),
    scheduler("volume_unbound", "pod has unbound immediate PersistentVolumeClaims (repeated 2 times)"),
    scheduler(
        "volume_unbound",
        '0/5 nodes are available: persistentvolumeclaim "ckpt-out" not found. preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling.',
    ),
    scheduler(
        "volume_unbound",
        "0/7 nodes are available: 3 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 4 node(s) didn't find available persistent volumes to bind.",
    ),
    scheduler(
        "volume_unbound", "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) did not have enough free storage."
    ),
    scheduler(
        "volume_unbound",
        "0/3 nodes are available: 3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
    ),
    scheduler(
        "volume_unbound",
        '0/3 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "train-0-scratch".',
    ),
    scheduler(
        "volume_attach",
        "0/6 nodes are available: 2 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 4 node(s) had volume node affinity conflict.",
    ),
    scheduler(
        "volume_attach",
        "0/3 nodes are available: 3 node(s) exceed max volume count. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
    ),
    scheduler(
        "volume_attach",
        "0/3 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode, 2 node(s) didn't match Pod's node affinity/selector.",
    ),
    Line(
        "volume_unbound",
        "FailedScheduling",
        'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
    ),
    Line(
        "gpu_shortage",
        "FailedScheduling",
        "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Unschedulable, 2 Undetermined. Origin reason is train-0: 0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu.",
        object="PodGroup",
    ),
    Line(
        "gpu_shortage",
        "Unschedulable",
        "Resources were not found for 1 pods due to: no nodes with enough resources were found: 3 node(s) didn't have enough resources: GPUs. \n1 node(s) pod number exceeded.",
        object="PodGroup",
    ),
    Line(
        "gpu_shortage",
        "UnexpectedAdmissionError",
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1, which is unexpected",
        "condition",
    ),
    Line(
        "cpu_mem_shortage",
        "OutOfmemory",
        "Node didn't have enough resource: memory, requested: 68719476736, used: 2147483648, capacity: 67108864000",
    ),
    Line(
        "gpu_shortage",
        "OutOfnvidia.com/gpu",
        "Node didn't have enough resource: nvidia.com/gpu, requested: 4, used: 6, capacity: 8",
    ),
    Line(
        "affinity_taint",
        "NodeAffinity",
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        "condition",
    ),
)

AUTOSCALER = (
    Line(
        "gpu_shortage",
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 3 max node group size reached, 1 node(s) had untolerated taint {dedicated: infra}",
    ),
    Line(
        "affinity_taint",
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 2 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)",
    ),
    Line(
        "cpu_mem_shortage",
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 2 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector",
    ),
    Line("gpu_shortage", "NotTriggerScaleUp", "pod didn't trigger scale-up: 4 Insufficient nvidia.com/gpu"),
    Line("other", "TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 1->2 (max: 4)}]"),
    Line(
        "affinity_taint",
        "FailedScheduling",
        'Failed to schedule pod, incompatible with nodepool "default", daemonset overhead={"cpu":"180m","pods":"4"}, did not tolerate taint (taint=team=vision:NoSchedule); incompatible with nodepool "arm", daemonset overhead={"cpu":"180m","pods":"4"}, incompatible requirements, key kubernetes.io/arch, kubernetes.io/arch In [amd64] not in kubernetes.io/arch In [arm64]',
    ),
    Line(
        "gpu_shortage",
        "FailedScheduling",
        'Failed to schedule pod, incompatible with nodepool "gpu", daemonset overhead={"cpu":"180m","pods":"4"}, no instance type satisfied resources {"cpu":"8180m","memory":"64Gi","nvidia.com/gpu":"16","pods":"5"} and requirements karpenter.sh/nodepool In [gpu] (no instance type has enough resources); incompatible with nodepool "default", daemonset overhead={"cpu":"180m","pods":"4"}, did not tolerate taint (taint=x=y:NoSchedule)',
    ),
    Line(
        "cpu_mem_shortage",
        "FailedScheduling",
        'Failed to schedule pod, incompatible with nodepool "default", daemonset overhead={"cpu":"180m","pods":"4"}, no instance type satisfied resources {"cpu":"512","memory":"64Gi","pods":"5"} and requirements karpenter.sh/nodepool In [default] (no instance type has enough resources)',
    ),
)

KUEUE = (
    Line(
        "quota",
        "Pending",
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line(
        "quota",
        "WaitingForQuota",
        "couldn't assign flavors to pod set worker: insufficient unused quota for memory in flavor default, 12Gi more needed, untolerated taint {spot true NoSchedule <nil>} in flavor spot",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line(
        "quota",
        "ExceedsMaxQuota",
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line(
        "quota",
        "Pending",
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, request > maximum capacity (100 > 64)",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line(
        "quota",
        "Pending",
        "couldn't assign flavors to pod set main: borrowing limit for cpu in flavor default exceeded",
        "condition",
    ),
    Line(
        "affinity_taint",
        "Pending",
        "couldn't assign flavors to pod set launcher: flavor arm doesn't match node affinity, flavor spot doesn't match node affinity",
        "condition",
    ),
    Line(
        "affinity_taint",
        "NoMatchingFlavor",
        "couldn't assign flavors to pod set main: untolerated taint {gpu-only true NoSchedule <nil>} in flavor gpu",
        "condition",
    ),
    Line(
        "queue_misconfig",
        "Misconfigured",
        "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in ClusterQueue",
        "condition",
    ),
    Line("queue_misconfig", "Pending", "couldn't assign flavors to pod set main: flavor h200 not found", "condition"),
    Line(
        "gpu_shortage",
        "Pending",
        'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 1 out of 4 pod(s). Total nodes: 8; excluded: resource "nvidia.com/gpu": 7',
        "condition",
    ),
    Line(
        "affinity_taint",
        "TopologyPlacementFailed",
        "couldn't assign flavors to pod set main: topology \"default\" doesn't allow to fit any of 4 pod(s). Total nodes: 8; excluded: nodeSelector: 8",
        "condition",
    ),
    Line(
        "cpu_mem_shortage",
        "TopologyPlacementFailed",
        'couldn\'t assign flavors to pod set main: topology "default" doesn\'t allow to fit any of 4 slice(s). Total nodes: 8; excluded: resource "memory": 6, taint "x=y:NoSchedule": 2',
        "condition",
    ),
    Line(
        "preempted",
        "Pending",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 8 more needed. Pending the preemption of 2 workload(s)",
        "condition",
    ),
    Line(
        "queue_misconfig",
        "Inadmissible",
        "LocalQueue vision doesn't exist",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line("queue_misconfig", "Misconfigured", "LocalQueue vision doesn't exist", "condition"),
    Line("queue_misconfig", "Suspended", "ClusterQueue shared is inactive", "condition"),
    Line("queue_misconfig", "Inadmissible", "LocalQueue vision is stopped", "condition"),
    Line(
        "queue_misconfig",
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
        "condition",
        object="Workload Evicted=True",
    ),
    Line(
        "queue_misconfig",
        "FlavorNotFound",
        "Can't admit new workloads: references missing ResourceFlavor(s): h200.",
        "condition",
        object="ClusterQueue Active=False",
    ),
    Line(
        "queue_misconfig",
        "AdmissionCheckInactive",
        "Can't admit new workloads: references inactive AdmissionCheck(s): prov.",
        "condition",
        object="ClusterQueue Active=False",
    ),
    Line("queue_misconfig", "Pending", "workload namespace doesn't match ClusterQueue selector", "condition"),
    Line(
        "admission_check",
        "AdmissionCheck",
        'Evicted due to AdmissionCheck in Retry state: "warm" (41 % cached)',
        "condition",
        object="Workload Evicted=True",
    ),
    Line("admission_check", "AdmissionCheck", "At least one admission check is false", "condition"),
    Line(
        "admission_check",
        "Deactivated",
        'The workload is deactivated due to AdmissionChecks in Rejected state: "warm" (gone); "prov"',
        "condition",
    ),
    Line(
        "admission_check",
        "Pending",
        "Provisioning Request was created, waiting for nodes",
        "condition",
        object="Workload admissionChecks[].state=Pending",
    ),
    Line(
        "admission_check",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
        "condition",
        object="Workload Admitted=False",
    ),
    Line(
        "admission_check",
        "AdmissionGated",
        "Admission is gated by: forebay.dev/data-ready",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line(
        "preempted",
        "Preempted",
        "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to reclamation within the cohort; preemptor path: /a/b; preemptee path: /a/c",
        "condition",
    ),
    Line(
        "preempted",
        "InCohortReclaimWhileBorrowing",
        "Preempted to accommodate a workload (UID: 1, JobUID: UNKNOWN) due to reclamation within the cohort while borrowing",
        "condition",
    ),
    Line(
        "preempted",
        "FlavorMigration",
        "Evicted to accommodate a workload (UID: 9) due to migration to more favorable resource flavor",
        "condition",
    ),
    Line(
        "timeout",
        "PodsReadyTimeout",
        "Exceeded the PodsReady timeout robot/job-train-1",
        "condition",
        object="Workload Evicted=True",
    ),
    Line(
        "timeout",
        "Deactivated",
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
        "condition",
    ),
    Line("timeout", "MaximumExecutionTimeExceeded", "exceeding the maximum execution time", "condition"),
    Line(
        "node_lost",
        "NodeFailures",
        "Workload was evicted as there was no replacement for unhealthy node(s): gpu-3",
        "condition",
    ),
    Line("quota", "Pending", "Workload no longer fits after processing another workload", "condition"),
    Line("other", "PendingEvaluation", "Workload is pending evaluation in the scheduling queue", "condition"),
    Line("other", "NoReservation", "The workload has no reservation", "condition"),
    Line("other", "JobSuspended", "Job suspended", "jobCondition"),
)

OTHER_QUEUES = (
    Line("quota", "Unschedulable", "queue resource quota insufficient: insufficient nvidia.com/gpu", object="PodGroup"),
    Line(
        "quota",
        "NonPreemptibleOverQuota",
        "Non-preemptible workload is over quota. Workload requested 4 GPUs, but team-a quota is 8 GPUs, while 6 GPUs are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        "condition",
    ),
    Line(
        "quota",
        "OverLimit",
        "team-a quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 8 GPUs allocated and workload requested 1 GPUs",
        "condition",
    ),
    Line("queue_misconfig", "QueueDoesNotExist", "Queue 'vision' does not exist", "condition"),
    Line("preempted", "Evict", "Pod team-a/train-1 was preempted by workload team-b/exp-2."),
    Line(
        "preempted",
        "Evict",
        "Pod team-a/train-1 was preempted and rescheduled due to bin packing (resource consolidation) procedure",
    ),
    Line("other", "NotEnoughTasks", "Not enough valid tasks for gang-scheduling, valid: 1, min: 4", "condition"),
    Line(
        "other",
        "Evict",
        "Workload doesn't meet the minimum required number of pods (3), evicting remaining pod: team-a/train-2",
    ),
    Line(
        "queue_misconfig",
        "Forbidden",
        'admission webhook "validatejob.volcano.sh" denied the request: unable to find job queue: queues.scheduling.volcano.sh "vision" not found',
        "apiError",
    ),
    Line(
        "other",
        "FailedScheduling",
        "pre-filter pod train-0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3",
    ),
    Line(
        "quota",
        "FailedScheduling",
        "0/6 nodes are available: 6 Insufficient quotas, quotaName: team-b, exceedDimensions: [cpu].",
    ),
    Line(
        "quota",
        "FailedScheduling",
        "Pod robot/train-0 is rejected in PreFilter because ElasticQuota team-a is more than Max",
    ),
    Line("config", "Unschedulable", "Missing required configmaps: [robot-config train-args]", "condition"),
)

API = (
    Line(
        "quota",
        "FailedCreate",
        'Error creating: pods "train-x" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=7, limited: requests.nvidia.com/gpu=8',
    ),
    Line(
        "admission_denied",
        "FailedCreate",
        'Error creating: pods "train-x" is forbidden: failed quota: compute: must specify limits.memory for: trainer; requests.cpu for: trainer',
    ),
    Line(
        "admission_denied",
        "FailedCreate",
        'Error creating: pods "train-x" is forbidden: [maximum cpu usage per Container is 8, but limit is 16, maximum memory usage per Container is 32Gi, but limit is 64Gi]',
    ),
    Line(
        "admission_denied",
        "FailedCreate",
        'Error creating: pods "train-x" is forbidden: violates PodSecurity "baseline:v1.30": hostPath volumes (volume "data")',
    ),
    Line(
        "admission_denied",
        "FailedCreate",
        'Error creating: admission webhook "validate.kyverno.svc-fail" denied the request: policy Pod/robot/train for resource violation: require-labels',
    ),
    Line(
        "other",
        "FailedCreate",
        'Error creating: Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate--v1-pod?timeout=10s": no endpoints available for service "kueue-webhook-service"',
    ),
    Line(
        "admission_denied",
        "Forbidden",
        "pods \"train\" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'no-latest' denied request: image tag latest is not allowed",
        "apiError",
    ),
    Line(
        "admission_denied",
        "FailedCreate",
        'pods "train-" is forbidden: unable to validate against any security context constraint: [provider "restricted": Forbidden: not usable by user or serviceaccount]',
    ),
    Line(
        "permission",
        "Forbidden",
        'jobs.batch is forbidden: User "system:serviceaccount:robot:default" cannot create resource "jobs" in API group "batch" in the namespace "robot"',
        "apiError",
    ),
    Line("permission", "Unauthorized", "Unauthorized", "apiError"),
    Line(
        "timeout",
        "Timeout",
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
        "apiError",
    ),
    Line("other", "AlreadyExists", 'jobs.batch "train-1" already exists', "apiError"),
    Line(
        "config",
        "Invalid",
        'Job.batch "train" is invalid: spec.template.spec.containers[0].volumeMounts[1].name: Not found: "dataset"',
        "apiError",
    ),
)

VOLUMES = (
    Line(
        "volume_mount",
        "FailedMount",
        'MountVolume.SetUp failed for volume "pvc-9" : rpc error: code = DeadlineExceeded desc = context deadline exceeded',
    ),
    Line(
        "volume_mount",
        "FailedMount",
        'MountVolume.SetUp failed for volume "nfs-data" : mount failed: exit status 32 Mounting command: mount Output: mount.nfs: access denied by server while mounting 10.0.0.4:/export',
    ),
    Line(
        "volume_mount",
        "FailedMount",
        'MountVolume.MountDevice failed for volume "pvc-9" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name fuse.csi.fluid.io not found in the list of registered CSI drivers',
    ),
    Line(
        "volume_mount",
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[ckpt], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition",
    ),
    Line(
        "volume_mount",
        "FailedMapVolume",
        'MapVolume.MapPodDevice failed for volume "blk" : rpc error: code = Internal desc = failed',
    ),
    Line(
        "volume_mount",
        "CreateContainerError",
        'failed to prepare subPath for volumeMount "out" of container "trainer"',
        "containerStatus",
    ),
    Line(
        "volume_mount",
        "Failed",
        'Error: failed to generate container "x" spec: failed to generate spec: failed to mkdir "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount": mkdir /var/lib/kubelet/pods/1: transport endpoint is not connected',
    ),
    Line(
        "volume_attach",
        "FailedAttachVolume",
        'AttachVolume.Attach failed for volume "pvc-1" : rpc error: code = Internal desc = could not attach volume "vol-1" to node "i-1": attachment of disk failed',
    ),
    Line(
        "volume_attach",
        "FailedAttachVolume",
        'Multi-Attach error for volume "pvc-2" Volume is already used by pod(s) train-old-1',
    ),
    Line(
        "volume_attach",
        "FailedMount",
        'MountVolume.WaitForAttach failed for volume "pvc-2" : volume attachment is being deleted',
    ),
    Line("volume_unbound", "ProvisioningFailed", 'storageclass.storage.k8s.io "fast-ssd" not found', object="PVC"),
    Line(
        "volume_unbound",
        "ProvisioningFailed",
        'failed to provision volume with StorageClass "ceph": rpc error: code = ResourceExhausted desc = no space in pool',
        object="PVC",
    ),
    Line(
        "volume_unbound",
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
        object="PVC",
    ),
    Line(
        "volume_unbound",
        "ClaimLost",
        "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        object="PVC",
    ),
    Line("config", "FailedMount", 'MountVolume.SetUp failed for volume "keys" : secret "s3-keys" not found'),
    Line(
        "config",
        "FailedMount",
        'MountVolume.SetUp failed for volume "cfg" : references non-existent config key: train.yaml',
    ),
    Line(
        "other",
        "FailedMount",
        'MountVolume.SetUp failed for volume "cfg" : object "robot"/"train-config" not registered',
    ),
)

CONTAINERS = (
    Line(
        "image",
        "ErrImagePull",
        'rpc error: code = NotFound desc = failed to pull and unpack image "registry.example.com/a/b:v9": failed to resolve reference "registry.example.com/a/b:v9": registry.example.com/a/b:v9: not found',
        "containerStatus",
    ),
    Line(
        "image",
        "ImagePullBackOff",
        'Back-off pulling image "registry.example.com/a/b:v9": ErrImagePull: failed to authorize: failed to fetch anonymous token: 401 Unauthorized',
        "containerStatus",
    ),
    Line(
        "image",
        "Failed",
        'Failed to pull image "ubuntu:24.04": failed to pull and unpack image: 429 Too Many Requests - toomanyrequests: You have reached your unauthenticated pull rate limit.',
    ),
    Line(
        "image",
        "Failed",
        'Failed to pull image "big:1": failed to extract layer sha256:1: write /var/lib/containerd/x: no space left on device: unknown',
    ),
    Line("image", "Failed", "Error: ErrImagePull"),
    Line(
        "image",
        "Failed",
        'Failed to pull image "a/b:1": rpc error: code = Unknown desc = Get "https://registry.example.com/v2/": dial tcp: lookup registry.example.com: no such host',
    ),
    Line("image", "ErrImagePull", "no match for platform in manifest: not found", "containerStatus"),
    Line("config", "CreateContainerConfigError", 'configmap "train-args" not found', "containerStatus"),
    Line("config", "CreateContainerConfigError", "couldn't find key TOKEN in Secret robot/hub", "containerStatus"),
    Line(
        "config",
        "CreateContainerConfigError",
        'container has runAsNonRoot and image will run as root (pod: "train_robot(1)", container: trainer)',
        "containerStatus",
    ),
    Line(
        "config",
        "StartError",
        'failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "lerobot-trian": executable file not found in $PATH: unknown',
        "containerStatus",
        128,
    ),
    Line("config", "Error", "exec /usr/bin/python3: exec format error", "containerStatus", 1),
    Line("oom", "OOMKilled", "", "containerStatus", 137),
    Line("oom", "SystemOOM", "System OOM encountered, victim process: python, pid: 4242", object="Node"),
    Line(
        "crash",
        "CrashLoopBackOff",
        "back-off 5m0s restarting failed container=trainer pod=train-0_robot(1)",
        "containerStatus",
    ),
    Line("crash", "Error", "", "containerStatus", 1),
    Line("crash", "Error", "", "containerStatus", 139),
    Line("crash", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "jobCondition"),
    Line(
        "crash",
        "PodFailurePolicy",
        "Container trainer for pod robot/train-0 failed with exit code 3 matching FailJob rule at index 1",
        "jobCondition",
    ),
    Line("crash", "PyTorchJobFailed", "PyTorchJob train is failed because 1 Worker replica(s) failed.", "jobCondition"),
    Line("timeout", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline", "condition"),
    Line("other", "Error", "", "containerStatus", 137),
    Line("other", "ContainerCreating", "", "containerStatus"),
    Line("config", "Error", "", "containerStatus", 203),
)

ENDINGS = (
    Line("evicted_disk", "Evicted", "The node was low on resource: nodefs. ", "condition"),
    Line("evicted_disk", "Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "10Gi". ', "condition"),
    Line(
        "evicted_disk",
        "Evicted",
        'Container trainer exceeded its local ephemeral storage limit "20Gi". ',
        "condition",
        137,
    ),
    Line("evicted_disk", "Evicted", "The node had condition: [DiskPressure]. ", "condition"),
    Line("evicted_node", "Evicted", "The node had condition: [MemoryPressure]. ", "condition"),
    Line(
        "evicted_node",
        "Evicted",
        "The node was low on resource: pids. Threshold quantity: 1000, available: 40. ",
        "condition",
    ),
    Line("evicted_node", "EvictionByEvictionAPI", "Eviction API: evicting", "condition", object="DisruptionTarget"),
    Line(
        "preempted",
        "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
        "condition",
        object="DisruptionTarget",
    ),
    Line("preempted", "Preempted", "Preempted by pod 1a2b on node gpu-3"),
    Line("node_lost", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "condition"),
    Line("node_lost", "NodeNotReady", "Node is not ready"),
    Line("node_lost", "NodeLost", "Node gpu-3 which was running pod train-0 is unresponsive", "condition"),
    Line(
        "node_lost",
        "ContainerStatusUnknown",
        "The container could not be located when the pod was terminated",
        "containerStatus",
        137,
    ),
    Line("node_lost", "NodeShutdown", "Pod was rejected as the node is shutting down.", "condition"),
    Line("node_lost", "NodeStatusUnknown", "Kubelet stopped posting node status.", "condition", object="Node"),
)

MORE = (
    Line("volume_mount", "Error", "", "containerStatus", 2011),
    Line("timeout", "Error", "", "containerStatus", 3005),
    Line("permission", "Unauthorized", "the credentials were not good", "apiError"),
    Line(
        "config",
        "FailedCreate",
        'Error creating: pods "train-" is forbidden: error looking up service account robot/trainer: serviceaccount "trainer" not found',
    ),
    Line(
        "config",
        "FailedCreate",
        'Error creating: pods "train-" is forbidden: no PriorityClass with name urgent was found',
    ),
    Line("admission_denied", "FailedCreate", 'Error creating: pods "train-" is forbidden: pod rejected by plugin'),
    Line("other", "Expired", "too old resource version: 5 (9)", "apiError"),
    Line("preempted", "InCohortReclamation", "", "condition"),
    Line("preempted", "Pending", "Pending the preemption of 1 workload(s)", "condition"),
    Line("queue_misconfig", "TopologyNotFound", "it is not there", "condition"),
    Line("admission_check", "AdmissionChecksRejected", "version 4 was deleted", "condition"),
    Line("admission_check", "Pending", "41 % warm", "condition", object="Workload admissionChecks[].state=Pending"),
    Line("affinity_taint", "NoMatchingFlavor", "", "condition"),
    Line("gpu_shortage", "TopologyPlacementFailed", "", "condition"),
    Line("preempted", "WaitingForPreemptedWorkloads", "", "condition"),
    Line(
        "queue_misconfig",
        "Misconfigured",
        "something of the queue is wrong",
        "condition",
        object="Workload QuotaReserved=False",
    ),
    Line("other", "Waiting", "Waiting for all admitted workloads to be in the PodsReady condition", "condition"),
    Line("other", "Deactivated", "The workload is deactivated", "condition"),
    Line(
        "image", "InvalidImageName", "Failed to apply default image tag: couldn't parse image name", "containerStatus"
    ),
    Line(
        "image",
        "ErrImageNeverPull",
        'Container image "a:1" is not present with pull policy of Never',
        "containerStatus",
    ),
    Line(
        "image",
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (hub); attempting to pull the image may not succeed.",
    ),
    Line("other", "Pulling", 'Pulling image "a/b:1"'),
    Line("volume_attach", "FailedAttachVolume", "no reason was given"),
    Line("other", "WaitForFirstConsumer", "waiting for first consumer to be created before binding", object="PVC"),
    Line(
        "volume_mount",
        "FailedMount",
        'MountVolume.SetUp failed for volume "jfs" : rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /csi/csi.sock: connect: connection refused"',
    ),
    Line(
        "volume_mount",
        "FailedMount",
        'MountVolume.SetUp failed for volume "jfs" : rpc error: code = Internal desc = mount point /jfs/pvc-1 is not ready, mount pod log: dial tcp: i/o timeout',
    ),
    Line("volume_mount", "FailedMount", "it did not work"),
    Line("evicted_disk", "NodeHasDiskPressure", "Node gpu-1 status is now: NodeHasDiskPressure", object="Node"),
    Line("evicted_node", "EvictionThresholdMet", "Attempting to reclaim memory", object="Node"),
    Line("evicted_node", "Evicted", "", "condition"),
    Line("other", "SuccessfulDelete", "Deleted pod: train-1"),
    Line(
        "node_lost",
        "UnexpectedAdmissionError",
        "Allocate failed due to device plugin rpc failed: nvml: GPU is lost, which is unexpected",
        "condition",
    ),
    Line(
        "node_lost",
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
        "condition",
    ),
    Line(
        "gpu_shortage",
        "Unschedulable",
        "The pod robot/train-0 requires GPU: 16, CPU: 8 (cores). Max nvidia.com/gpu resources available in a single node in the default node-pool is topped at 8",
        "condition",
    ),
    Line("cpu_mem_shortage", "Unschedulable", "no nodes available to schedule pods", "condition"),
    Line(
        "other",
        "CreateContainerError",
        'failed to reserve container name "x": name "x" is reserved for "1"',
        "containerStatus",
    ),
    Line(
        "config",
        "FailedCreatePodSandBox",
        'Failed to create pod sandbox: rpc error: code = Unknown desc = unable to get OCI runtime for sandbox "1": no runtime for "nvidia" is configured',
    ),
    Line("config", "RunContainerError", "", "containerStatus"),
    Line("gpu_shortage", "FailedToScaleUpGroup", "Scale-up failed for group gpu-h100: GCE_STOCKOUT"),
    Line(
        "quota",
        "FailedToScaleUpGroup",
        "Scale-up failed for group gpu-h100: GCE_QUOTA_EXCEEDED: quota for region europe exceeded",
    ),
    Line(
        "other",
        "FailedCreatePodSandBox",
        'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "1": plugin type="cilium-cni" failed (add): timeout',
    ),
    Line("crash", "WaitForRecovery", "At least one pod has failed, waiting for recovery", "condition"),
    Line("admission_check", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "condition"),
    Line("other", "Completed", "", "containerStatus", 0),
    Line("oom", "Error", "MemoryError", "containerStatus", 1),
    Line("other", "Killing", "Stopping container trainer"),
)

ALL = SCHEDULER + AUTOSCALER + KUEUE + OTHER_QUEUES + API + VOLUMES + CONTAINERS + ENDINGS + MORE

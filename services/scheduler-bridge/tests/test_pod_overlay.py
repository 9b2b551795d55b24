"""The overlay `pod:`: what clusters need is taken, what opens a container is not, unless the project says so."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.scheduler_bridge.domain.pod_overlay import DANGEROUS, OverlayRules, check_overlay

STRICT = OverlayRules(project="arm-lab")
LISTING = OverlayRules(
    project="arm-lab",
    service_accounts=("trainer",),
    secrets=("wandb",),
    configmaps=("settings",),
    image_pull_secrets=("registry",),
    tolerations=("nvidia.com/gpu", "lab.example/big"),
    annotations=("prometheus.io/scrape",),
    labels=("lab.example/team",),
    schedulers=("packer",),
)
OPEN = OverlayRules(
    project="arm-lab",
    allow=DANGEROUS,
    **dict.fromkeys(
        ("service_accounts", "secrets", "configmaps", "image_pull_secrets", "tolerations", "annotations", "labels",
         "runtime_classes", "schedulers"),
        ("*",),
    ),
)  # fmt: skip
ANTI = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def on_nodes(key: str, field: str = "matchExpressions") -> dict[str, Any]:
    return {"nodeAffinity": {ANTI: {"nodeSelectorTerms": [{field: [{"key": key, "operator": "In", "values": ["a"]}]}]}}}


HARMLESS: dict[str, Any] = {
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "nodeSelector": {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-H200"},
    "affinity": {
        **on_nodes("topology.kubernetes.io/zone"),
        "podAntiAffinity": {
            SOFT: [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
            ]
        },
    },
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containerSecurityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "terminationGracePeriodSeconds": 120,
    "runtimeClassName": "nvidia",
    "automountServiceAccountToken": False,
    "hostNetwork": False,
    "labels": {"team": "arms"},
}
LISTED: list[tuple[dict[str, Any], str]] = [
    ({"serviceAccountName": "trainer"}, "pod.serviceAccountName"),
    ({"imagePullSecrets": [{"name": "registry"}]}, "pod.imagePullSecrets[0].name"),
    ({"envFrom": [{"secretRef": {"name": "wandb"}}]}, "pod.envFrom[0].secretRef"),
    ({"envFrom": [{"configMapRef": {"name": "settings"}}]}, "pod.envFrom[0].configMapRef"),
    ({"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "k"}}}]}, "pod.env[0].valueFrom.secretKeyRef"),
    ({"env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}]}, "pod.env[0].valueFrom.configMapKeyRef"),
    ({"tolerations": [{"key": "lab.example/big", "operator": "Exists"}]}, "pod.tolerations[0].key"),
    ({"annotations": {"prometheus.io/scrape": "true"}}, "pod.annotations.prometheus.io/scrape"),
    ({"labels": {"lab.example/team": "arms"}}, "pod.labels.lab.example/team"),
    ({"schedulerName": "packer"}, "pod.schedulerName"),
]  # fmt: skip
GUARDED: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "pod.hostNetwork"),
    ({"hostPID": True}, "pod.hostPID"),
    ({"hostIPC": True}, "pod.hostIPC"),
    ({"shareProcessNamespace": True}, "pod.shareProcessNamespace"),
    ({"nodeName": "gpu-1"}, "pod.nodeName"),
    ({"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}}, "pod.nodeSelector.kubernetes.io/hostname"),
    ({"affinity": on_nodes("kubernetes.io/hostname")}, f"pod.affinity.nodeAffinity.{ANTI}.nodeSelectorTerms[0]"),
    ({"affinity": on_nodes("metadata.name", "matchFields")}, f"pod.affinity.nodeAffinity.{ANTI}.nodeSelectorTerms[0]"),
    ({"affinity": {"nodeAffinity": {SOFT: [{"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}}]}}},
     f"pod.affinity.nodeAffinity.{SOFT}[0].preference"),
    ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["bus"]}]}, "pod.hostAliases"),
    ({"dnsConfig": {"nameservers": ["10.0.0.1"]}}, "pod.dnsConfig"),
    ({"dnsPolicy": "None"}, "pod.dnsPolicy"),
    ({"runtimeClassName": "bare"}, "pod.runtimeClassName"),
    ({"containerSecurityContext": {"privileged": True}}, "pod.containerSecurityContext.privileged"),
    ({"containerSecurityContext": {"allowPrivilegeEscalation": True}}, "pod.containerSecurityContext.allowPrivilegeEscalation"),
    ({"containerSecurityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "pod.containerSecurityContext.capabilities"),
    ({"containerSecurityContext": {"procMount": "Unmasked"}}, "pod.containerSecurityContext.procMount"),
    ({"containerSecurityContext": {"runAsUser": 0}}, "pod.containerSecurityContext.runAsUser"),
    ({"securityContext": {"runAsUser": 0}}, "pod.securityContext.runAsUser"),
    ({"securityContext": {"runAsGroup": 0}}, "pod.securityContext.runAsGroup"),
    ({"securityContext": {"fsGroup": 0}}, "pod.securityContext.fsGroup"),
    ({"securityContext": {"supplementalGroups": [5, 0]}}, "pod.securityContext.supplementalGroups"),
    ({"securityContext": {"runAsNonRoot": False}}, "pod.securityContext.runAsNonRoot"),
    ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "pod.securityContext.sysctls"),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "pod.securityContext.seccompProfile"),
    ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "pod.securityContext.appArmorProfile"),
    ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "pod.securityContext.seLinuxOptions"),
]  # fmt: skip
NEVER: list[tuple[dict[str, Any], str, str]] = [
    ({"containers": []}, "pod.containers", "Forebay writes it"),
    ({"initContainers": [{"name": "x"}]}, "pod.initContainers", "Forebay writes it"),
    ({"volumes": []}, "pod.volumes", "write `mounts`"),
    ({"restartPolicy": "Always"}, "pod.restartPolicy", "`restart` of the job"),
    ({"priorityClassName": "system-node-critical"}, "pod.priorityClassName", "`priority_class` of the job"),
    ({"toleration": []}, "pod.toleration", "did you mean 'tolerations'"),
    ({"ephemeralContainers": []}, "pod.ephemeralContainers", "no such field"),
    ({"lifecycle": {}}, "pod.lifecycle", "no such field"),
    ({"activeDeadlineSeconds": 1}, "pod.activeDeadlineSeconds", "no such field"),
    ({"hostUsers": True}, "pod.hostUsers", "no such field"),
    ({"tolerations": "all"}, "pod.tolerations", "a list of mappings"),
    ({"tolerations": [{"operator": "Exists"}]}, "pod.tolerations[0]", "tolerates every taint"),
    ({"tolerations": [{}]}, "pod.tolerations[0]", "tolerates every taint"),
    ({"tolerations": [{"key": "", "operator": "Exists"}]}, "pod.tolerations[0].key", "the name of a label"),
    ({"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}, "pod.tolerations[0].key", "control-plane"),
    ({"tolerations": [{"key": "nvidia.com/gpu", "effect": "Everything"}]}, "pod.tolerations[0].effect", "one of NoSchedule"),
    ({"automountServiceAccountToken": True}, "pod.automountServiceAccountToken", "name the account"),
    ({"hostNetwork": "false"}, "pod.hostNetwork", "true or false"),
    ({"affinity": {"podAntiAffinity": {ANTI: []}}}, f"pod.affinity.podAntiAffinity.{ANTI}", "no such field"),
    ({"affinity": {"podAffinity": {ANTI: [{"topologyKey": "zone", "namespaceSelector": {}}]}}},
     f"pod.affinity.podAffinity.{ANTI}[0].namespaceSelector", "no such field"),
    ({"securityContext": {"privileged": True}}, "pod.securityContext.privileged", "no such field"),
    ({"securityContext": {"windowsOptions": {}}}, "pod.securityContext.windowsOptions", "no such field"),
    ({"securityContext": {"runAsUser": "0"}}, "pod.securityContext.runAsUser", "a number"),
    ({"securityContext": {"runAsUser": False}}, "pod.securityContext.runAsUser", "a number"),
    ({"securityContext": {"fsGroup": -1}}, "pod.securityContext.fsGroup", "a number"),
    ({"env": [{"name": "FOREBAY_JOB", "value": "x"}]}, "pod.env[0]", "set by Forebay"),
    ({"env": [{"name": "A", "value": 1}]}, "pod.env[0]", "put it into quotes"),
    ({"env": [{"name": "A B", "value": "1"}]}, "pod.env[0]", "needs a `name`"),
    ({"env": [{"name": "A\n", "value": "1"}]}, "pod.env[0]", "needs a `name`"),
    ({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}, "pod.env[0].valueFrom", "expected one of"),
    ({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}, "pod.env[0].valueFrom", "no value"),
    ({"env": {"A": "1"}}, "pod.env", "expected a list"),
    ({"envFrom": [{"hostRef": {}}]}, "pod.envFrom[0]", "secretRef or configMapRef"),
    ({"envFrom": [{"prefix": "FOREBAY_", "configMapRef": {"name": "settings"}}]}, "pod.envFrom[0].prefix", "Forebay's own"),
    ({"labels": {"kueue.x-k8s.io/queue-name": "b"}}, "pod.labels.kueue.x-k8s.io/queue-name", "belongs to"),
    ({"labels": {"app.kubernetes.io/managed-by": "b"}}, "pod.labels.app.kubernetes.io/managed-by", "belongs to"),
    ({"labels": {"job-name": "other"}}, "pod.labels.job-name", "belongs to"),
    ({"labels": {"team": "arms\n"}}, "pod.labels.team", "the value of a label"),
    ({"labels": {"team\n": "arms"}}, "pod.labels", "no name of a label"),
    ({"labels": {"team": "a b"}}, "pod.labels.team", "the value of a label"),
    ({"nodeSelector": {"zone": "a\n"}}, "pod.nodeSelector.zone", "the value of a label"),
    ({"annotations": {"forebay.dev/inputs": "x"}}, "pod.annotations.forebay.dev/inputs", "belongs to"),
    ({"annotations": {"pin.forebay.dev/dataset.a": "x"}}, "pod.annotations.pin.forebay.dev/dataset.a", "belongs to"),
    ({"annotations": {"container.apparmor.security.beta.kubernetes.io/train": "unconfined"}},
     "pod.annotations.container.apparmor.security.beta.kubernetes.io/train", "belongs to"),
    ({"labels": {"a": 1}}, "pod.labels.a", "numbers in quotes"),
    ({"terminationGracePeriodSeconds": -1}, "pod.terminationGracePeriodSeconds", "seconds, 0 to 86400"),
]  # fmt: skip


def test_what_clusters_need_is_taken_without_permission() -> None:
    """GPU taints, selectors, users, environment."""
    assert check_overlay(HARMLESS, STRICT) == ()


@pytest.mark.parametrize(("overlay", "field"), LISTED, ids=[item[1] for item in LISTED])
def test_names_are_those_that_the_project_lists(overlay: dict[str, Any], field: str) -> None:
    """Anything else is refused, with what is listed and where."""
    (problem,) = check_overlay(overlay, STRICT)
    assert problem.field == field
    assert "of the project file" in problem.message
    assert check_overlay(overlay, LISTING) == ()
    assert check_overlay(overlay, OPEN) == ()


@pytest.mark.parametrize(
    "name", ["k8s.v1.cni.cncf.io/networks", "io.kubernetes.cri-o.Devices", "sidecar.istio.io/inject"]
)
def test_annotations_are_an_allow_list(name: str) -> None:
    """With or without a domain: runtimes and networks are steered by them."""
    (problem,) = check_overlay({"annotations": {name: "x"}}, LISTING)
    assert problem.field == f"pod.annotations.{name}"


@pytest.mark.parametrize(("overlay", "field"), GUARDED, ids=[item[1] for item in GUARDED])
def test_what_opens_the_container_needs_the_projects_permission(overlay: dict[str, Any], field: str) -> None:
    """Refused by the project's name, and taken where its file allows it."""
    (problem,) = check_overlay(overlay, STRICT)
    assert problem.field == field
    assert "arm-lab" in problem.message
    assert check_overlay(overlay, OPEN) == ()


@pytest.mark.parametrize(("overlay", "field", "said"), NEVER, ids=[item[1] for item in NEVER])
def test_what_nobody_may_write_is_refused_everywhere(overlay: dict[str, Any], field: str, said: str) -> None:
    """Whatever the project allows; the sentence says what to write instead."""
    for rules in (STRICT, OPEN):
        (problem,) = check_overlay(overlay, rules)
        assert problem.field == field
        assert said in problem.message

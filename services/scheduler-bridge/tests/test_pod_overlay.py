"""The overlay `pod:`: what clusters need is taken, what opens a container is not, unless the project says so."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.scheduler_bridge.domain.pod_overlay import DANGEROUS, OverlayRules, check_overlay

STRICT = OverlayRules(project="arm-lab")
OPEN = OverlayRules(project="arm-lab", allow=DANGEROUS, service_accounts=("trainer",), secrets=("*",))
HARMLESS: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "nodeSelector": {"zone": "a"},
    "affinity": {"nodeAffinity": {}},
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containerSecurityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "terminationGracePeriodSeconds": 120,
    "runtimeClassName": "nvidia",
    "labels": {"team": "arms"},
}
GUARDED: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "pod.hostNetwork"),
    ({"hostPID": True}, "pod.hostPID"),
    ({"hostIPC": True}, "pod.hostIPC"),
    ({"shareProcessNamespace": True}, "pod.shareProcessNamespace"),
    ({"nodeName": "gpu-1"}, "pod.nodeName"),
    ({"containerSecurityContext": {"privileged": True}}, "pod.containerSecurityContext.privileged"),
    ({"containerSecurityContext": {"allowPrivilegeEscalation": True}}, "pod.containerSecurityContext.allowPrivilegeEscalation"),
    ({"containerSecurityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "pod.containerSecurityContext.capabilities"),
    ({"containerSecurityContext": {"procMount": "Unmasked"}}, "pod.containerSecurityContext.procMount"),
    ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "pod.securityContext.sysctls"),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "pod.securityContext.seccompProfile"),
    ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "pod.securityContext.seLinuxOptions"),
    ({"serviceAccountName": "trainer"}, "pod.serviceAccountName"),
    ({"envFrom": [{"secretRef": {"name": "wandb"}}]}, "pod.envFrom[0].secretRef"),
    ({"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "k"}}}]}, "pod.env[0].valueFrom.secretKeyRef"),
]  # fmt: skip
NEVER: list[tuple[dict[str, Any], str, str]] = [
    ({"containers": []}, "pod.containers", "Forebay writes it"),
    ({"volumes": []}, "pod.volumes", "write `mounts`"),
    ({"restartPolicy": "Always"}, "pod.restartPolicy", "`restart` of the job"),
    ({"toleration": []}, "pod.toleration", "did you mean 'tolerations'"),
    ({"ephemeralContainers": []}, "pod.ephemeralContainers", "no such field"),
    ({"tolerations": "all"}, "pod.tolerations", "a list of mappings"),
    ({"securityContext": {"privileged": True}}, "pod.securityContext.privileged", "no such field"),
    ({"securityContext": {"windowsOptions": {}}}, "pod.securityContext.windowsOptions", "no such field"),
    ({"env": [{"name": "WANDB_API_KEY", "value": "abc"}]}, "pod.env[0]", "secrets are names, never values"),
    ({"env": [{"name": "FOREBAY_JOB", "value": "x"}]}, "pod.env[0]", "set by Forebay"),
    ({"env": [{"name": "A", "value": 1}]}, "pod.env[0]", "put it into quotes"),
    ({"env": [{"name": "A B", "value": "1"}]}, "pod.env[0]", "needs a `name`"),
    ({"env": {"A": "1"}}, "pod.env", "expected a list"),
    ({"envFrom": [{"hostRef": {}}]}, "pod.envFrom[0]", "secretRef or configMapRef"),
    ({"labels": {"kueue.x-k8s.io/queue-name": "b"}}, "pod.labels.kueue.x-k8s.io/queue-name", "belongs to"),
    ({"annotations": {"forebay.dev/inputs": "x"}}, "pod.annotations.forebay.dev/inputs", "belongs to"),
    ({"annotations": {"pin.forebay.dev/dataset.a": "x"}}, "pod.annotations.pin.forebay.dev/dataset.a", "belongs to"),
    ({"labels": {"a": 1}}, "pod.labels.a", "put 1 into quotes"),
    ({"terminationGracePeriodSeconds": -1}, "pod.terminationGracePeriodSeconds", "seconds, 0 to 86400"),
]  # fmt: skip


def test_what_clusters_need_is_taken_without_permission() -> None:
    """Pull secrets, tolerations, selectors, users, environment."""
    assert check_overlay(HARMLESS, STRICT) == ()


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

"""What `deploy/kubernetes` says of itself: probes, limits, rights, and who may connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.scheduler_bridge.adapters.kueue_gates import WEBHOOK_PROBE

DEPLOY = Path(__file__).parents[2] / "deploy/kubernetes"
Json = dict[str, Any]


def items(name: str) -> list[Json]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def of(name: str, kind: str) -> list[Json]:
    return [item for item in items(name) if item["kind"] == kind]


def templates() -> Iterator[Json]:
    yield of("bridge.yaml", "StatefulSet")[0]["spec"]["template"]
    yield of("webhook.yaml", "Deployment")[0]["spec"]["template"]


@pytest.mark.parametrize("template", templates(), ids=["bridge", "webhook"])
def test_probes_are_on_the_health_port_and_ask_what_they_mean(template: Json) -> None:
    """A pod that waits for the bus is not killed; the port of the API server's questions carries no probe."""
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = container[probe]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, 9464)


@pytest.mark.parametrize("template", templates(), ids=["bridge", "webhook"])
def test_our_own_pods_are_restricted(template: Json) -> None:
    """As the Pod Security Standard `restricted` wants it, with a root file system that cannot be written."""
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_a_webhook_always_answers_while_pods_are_moved() -> None:
    """Two of them, never both away by our own doing, and all that select them select the same pods."""
    (deployment,) = of("webhook.yaml", "Deployment")
    (budget,) = of("webhook.yaml", "PodDisruptionBudget")
    (service,) = of("webhook.yaml", "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert budget["spec"]["minAvailable"] == 1
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels


def test_nobody_else_may_connect() -> None:
    """The API server to the webhook, Prometheus to the health port, of each of our pods."""
    policies = {
        item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]: item["spec"]
        for item in items("network-policy.yaml")
    }
    for template in templates():
        policy = policies.pop(template["metadata"]["labels"]["app.kubernetes.io/name"])
        assert policy["policyTypes"] == ["Ingress"]
        (container,) = template["spec"]["containers"]
        opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        assert opened == {port["containerPort"] for port in container["ports"]}
        for rule in policy["ingress"]:
            (port,), (origin,) = rule["ports"], rule["from"]
            assert set(origin) == ({"ipBlock"} if port["port"] == 8443 else {"namespaceSelector"})
    assert policies == {}


def test_the_webhook_may_do_nothing_but_ask_which_gate_is_honoured() -> None:
    """One suspended Job by its name, and a look at what Kueue says of it."""
    (role,) = [
        item for item in of("bridge-rbac.yaml", "ClusterRole") if item["metadata"]["name"] == "forebay-webhook-probe"
    ]
    assert role["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [WEBHOOK_PROBE], "verbs": ["get", "delete"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
    ]

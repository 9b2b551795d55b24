"""Kueue as it comes, in a pod: its own manifests, made smaller where a test machine needs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from forebay.testcluster import build, images

NAMESPACE = "kueue-system"
DEPLOYMENT = "kueue-controller-manager"
_CONFIGURATION = "kueue-manager-config"
_SECRET = "kueue-webhook-server-cert"  # noqa: S105 a name
_CONCURRENCY: Mapping[str, int] = {"Job.batch": 5, "Workload.kueue.x-k8s.io": 5}
"""As in the configuration that Kueue ships; without it Kueue looks at one Job after the other."""
GATES: Mapping[str, bool] = {"AdmissionGatedBy": True}
"""Feature gates that differ from Kueue's defaults."""


def configuration(gates: Mapping[str, bool]) -> dict[str, Any]:
    """The content of Kueue's configuration file."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},  # ours are there before it starts
        "clientConnection": {"qps": 200, "burst": 400},
        "controller": {"groupKindConcurrency": dict(_CONCURRENCY)},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": dict(gates),
    }


def configuration_object(gates: Mapping[str, bool]) -> dict[str, Any]:
    text = yaml.safe_dump(configuration(gates))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _CONFIGURATION, "namespace": NAMESPACE},
        "data": {"controller_manager_config.yaml": text},
    }


def objects(rendered: Path, secret: Mapping[str, str], gates: Mapping[str, bool]) -> list[dict[str, Any]]:
    """Kueue's objects, definitions first, with our image, our certificate and our configuration."""
    found = build.rendered(rendered)
    for item in found:
        _trust(item, secret["ca.crt"])
        match item["kind"], item["metadata"]["name"]:
            case "Deployment", _:
                _fit(item["spec"])
            case "ConfigMap", name if name == _CONFIGURATION:
                item["data"] = configuration_object(gates)["data"]
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration", _:
                item["webhooks"] = [hook | {"timeoutSeconds": 30} for hook in item["webhooks"] if _serves(hook)]
            case "Secret", name if name == _SECRET:
                item["data"] = dict(secret)
    order = {"Namespace": 0, "CustomResourceDefinition": 1, "Deployment": 9}
    return sorted(found, key=lambda item: order.get(item["kind"], 5))


def _trust(item: dict[str, Any], authority: str) -> None:
    """Tell the API server whom to believe when it calls Kueue; Kueue's own way takes long on a busy machine."""
    clients = [hook["clientConfig"] for hook in item.get("webhooks", [])]
    if item["kind"] == "CustomResourceDefinition" and (conversion := item["spec"].get("conversion", {}).get("webhook")):
        clients.append(conversion["clientConfig"])
    for client in clients:
        client["caBundle"] = authority


def _serves(hook: Mapping[str, Any]) -> bool:
    """Whether it is about Kueue's objects or Jobs; others would only delay every write of a pod or Deployment."""
    return all({"batch", "kueue.x-k8s.io"}.issuperset(rule["apiGroups"]) for rule in hook["rules"])


def _fit(deployment: dict[str, Any]) -> None:
    deployment["strategy"] = {"type": "Recreate"}
    pod = deployment["template"]["spec"]
    pod["securityContext"]["runAsUser"] = 65532  # the kubelet cannot tell from a name that it is not root
    pod["terminationGracePeriodSeconds"] = 1
    (manager,) = pod["containers"]
    manager |= {
        "image": images.KUEUE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    secret = {"secretName": _SECRET}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "visibility"]
    pod["volumes"] += [{"name": name, "secret": secret} for name in ("visibility", "metrics")]
    manager["volumeMounts"].append({"name": "metrics", "mountPath": "/etc/kueue/metrics/certs", "readOnly": True})
    # Soon ready; and not given up on when a busy machine keeps it waiting.
    patience = {"timeoutSeconds": 10, "failureThreshold": 12}
    manager["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1, **patience}
    manager["livenessProbe"] |= patience


def log(pod_logs: Path) -> Path:
    """The newest log of Kueue's container, for who wants to know why it does not come up."""
    found = sorted(pod_logs.glob(f"{NAMESPACE}_{DEPLOYMENT}-*/manager/*.log"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else pod_logs / f"{NAMESPACE}_{DEPLOYMENT}"

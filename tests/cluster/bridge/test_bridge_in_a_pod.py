"""`deploy/kubernetes` as an operator applies it: the bridge as a pod of its own account, its webhook behind its Service."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.contracts.parts import Part, Source
from forebay.local.identities import ISSUER
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.testcluster import build
from forebay.testcluster.api import Api, condition
from forebay.testcluster.cluster import TestCluster

from tests.cluster import our_images
from tests.cluster.queues import Queues
from tests.eventually import eventually
from tests.servers.nats import nats_server

from .test_kubectl_apply import plain_job
from .test_training_in_pods import claim, version
from .world import (
    DEPLOY,
    OPERATOR,
    PROJECT,
    SOON,
    Bridge,
    account,
    address_of_this_machine,
    environment,
    project_file,
    relay,
    run,
)

pytestmark = pytest.mark.timeout(400)
OURS = "forebay"
"""The namespace of the manifests."""
SERVICE = f"scheduler-bridge-webhook.{OURS}.svc"
Json = dict[str, Any]


class Kubectl:
    """What an operator types, in the order of the README."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._words = words
        self._folder = folder

    async def __call__(self, *words: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(run, self._words, *words, stdin=stdin)

    async def apply(self, items: list[Json]) -> None:
        await self("apply", "-f", "-", stdin=yaml.safe_dump_all(items))

    async def account(self, namespace: str) -> None:
        await asyncio.to_thread(account, self._words, namespace)

    async def certificate(self) -> str:
        """Its Secret is made; the bundle for the webhook."""
        tls = self._folder / "tls"
        await asyncio.to_thread(subprocess.run, [str(DEPLOY / "certificate.sh"), str(tls), SERVICE], check=True)
        files = (f"--cert={tls / 'tls.crt'}", f"--key={tls / 'tls.key'}")
        await self("create", "secret", "tls", "scheduler-bridge-webhook", f"--namespace={OURS}", *files)
        return base64.b64encode((tls / "tls.crt").read_bytes()).decode()

    async def files(self, kind: tuple[str, ...], name: str, *paths: str) -> None:
        given = [f"--from-file={path}" for path in paths]
        await self("create", *kind, name, f"--namespace={OURS}", *given)


def adapt(item: Json, bus: str) -> None:
    """Put in our images and our bus."""
    (container,) = item["spec"]["template"]["spec"]["containers"]
    container["image"] = our_images.BRIDGE
    for variable in container["env"]:
        if variable["name"] == "FOREBAY_NATS_URL":
            variable["value"] = bus
        elif variable["name"] == "FOREBAY_AGENT_IMAGE":
            variable["value"] = our_images.AGENT


def bridge_manifest(bus: str) -> list[Json]:
    """`bridge.yaml` for this cluster: its images, its bus, and no storage class, because there is none."""
    (found,) = yaml.safe_load_all((DEPLOY / "bridge.yaml").read_text())
    adapt(found, bus)
    (state,) = found["spec"]["volumeClaimTemplates"]
    state["spec"] |= {"storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    return [found]


def webhook_manifest(bundle: str, namespace: str, bus: str) -> list[Json]:
    """`webhook.yaml`, for one namespace of a cluster that others use too."""
    items: list[Json] = list(yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text().replace("CA-BUNDLE", bundle)))
    deployment, configuration = items[0], items[-1]
    adapt(deployment, bus)
    (webhook,) = configuration["webhooks"]
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return items


def network_policies() -> str:
    return (DEPLOY / "network-policy.yaml").read_text().replace("API-SERVER", "10.0.0.10/32")


@pytest.fixture
async def deployed(
    *, cluster: TestCluster, api: Api, namespace: str, queues: Queues, agent: str, tmp_path: Path
) -> AsyncIterator[Bridge]:
    """Everything of `deploy/kubernetes`, applied; the bus is this machine's."""
    del agent  # on the node
    await cluster.load_image(await asyncio.to_thread(our_images.build_bridge, tmp_path))
    await queues.make({"cpu": "1", "memory": "2Gi"}, name="main")
    kubectl = Kubectl([str(build.kubectl()), f"--kubeconfig={cluster.kubeconfig}"], tmp_path)
    state = tmp_path / "state"
    state.mkdir()
    (state / "bridge.log").write_text("kubectl logs -n forebay scheduler-bridge-0", encoding="utf-8")
    state.chmod(0o777)  # a folder of the machine is nobody's whom the pod could be
    await kubectl.account(namespace)
    async with nats_server(tmp_path / "home", PROJECT, pods=True) as server, relay(server.port) as port:
        bus = f"nats://{await address_of_this_machine(cluster, api)}:{port}"
        projects = project_file(tmp_path, namespace, ("main",))
        keys = (f"scheduler-bridge.nk={server.key(Source(Part.BRIDGE))}", f"attempts.nk={server.home.key(ISSUER)}")
        async with (
            Client.connect(server.url, server.key(OPERATOR), OPERATOR) as client,
            _removed(api, kubectl, namespace),
        ):
            await kubectl.files(("secret", "generic"), "scheduler-bridge-keys", *keys)
            await kubectl.files(("configmap",), "scheduler-bridge-projects", str(projects))
            bundle = await kubectl.certificate()
            await _volume(api, namespace, state)
            await kubectl.apply(bridge_manifest(bus))
            await kubectl.apply(webhook_manifest(bundle, namespace, bus))
            await kubectl("apply", "--dry-run=server", "-f", "-", stdin=network_policies())
            variables = environment(server, tmp_path, cluster.kubeconfig, projects, bus)
            bridge = Bridge(
                server=server, client=client, api=api, namespace=namespace, folder=state, environment=variables
            )
            await bridge.start_registry()
            try:
                yield bridge
            finally:
                await bridge.close()


async def _volume(api: Api, namespace: str, folder: Path) -> None:
    """What the StatefulSet's claim gets."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": OURS, "name": "state-scheduler-bridge-0"},
    }
    await api.create({"kind": "PersistentVolume", "metadata": {"name": f"{namespace}-state"}, "spec": spec})


@contextlib.asynccontextmanager
async def _removed(api: Api, kubectl: Kubectl, namespace: str) -> AsyncIterator[None]:
    """All of it is taken away at the end, and nothing of an earlier run is there."""
    ours = (
        "statefulset/scheduler-bridge",
        "deployment/scheduler-bridge-webhook",
        "poddisruptionbudget/scheduler-bridge-webhook",
        "service/scheduler-bridge-webhook",
        "persistentvolumeclaim/state-scheduler-bridge-0",
        "secret/scheduler-bridge-keys",
        "secret/scheduler-bridge-webhook",
        "configmap/scheduler-bridge-projects",
    )

    async def remove() -> None:
        await kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration/forebay-scheduler-bridge")
        await kubectl("delete", "--ignore-not-found", "--wait", "--timeout=60s", f"--namespace={OURS}", *ours)

    await remove()
    try:
        yield
    finally:
        await remove()
        for volume in ("state", "pool"):
            await api.delete("PersistentVolume", None, f"{namespace}-{volume}")


async def _pod(api: Api) -> Json:
    """The bridge's pod, once it is ready."""
    found = await api.get("Pod", OURS, "scheduler-bridge-0")
    ready = condition(found or {}, "Ready")
    if found is None or ready is None or ready["status"] != "True":
        said = [one.get("state") for one in ((found or {}).get("status") or {}).get("containerStatuses") or ()]
        raise AssertionError(f"not ready: {said} {(found or {}).get('status')}")
    return found


async def test_the_bridge_runs_as_a_pod_and_takes_what_is_applied(
    *, deployed: Bridge, cluster: TestCluster, api: Api, namespace: str, image: str, tmp_path: Path
) -> None:
    """Ready by its probe; a Job of `kubectl apply` reaches its webhook through the Service, waits, runs and speaks."""
    pod = await eventually(lambda: _pod(api), what="the bridge's pod is ready", within=SOON)
    address = pod["status"]["podIP"]
    metrics = await asyncio.to_thread(_read, f"http://{address}:9464/metrics")
    assert "forebay_" in metrics
    manifest = version(tmp_path / "pool/reach/v1")
    await claim(api, namespace, "pool", tmp_path / "pool")
    kubectl = Kubectl(
        [str(build.kubectl()), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}"], tmp_path
    )
    file = plain_job("by-hand", "cat {data:reach}/meta/info.json", image)

    async def gated() -> bool:
        """The API server asks the webhook."""
        with contextlib.suppress(AssertionError):
            await kubectl(
                "apply", "--dry-run=server", "-f", "-", stdin=json.dumps(plain_job("no", "true", image, asks="@@"))
            )
            return False
        return True

    await eventually(gated, what="the API server asks the webhook", within=SOON)

    async def both() -> bool:
        found = await api.get("Deployment", OURS, "scheduler-bridge-webhook") or {}
        return (found.get("status") or {}).get("readyReplicas") == 2

    await eventually(both, what="two webhooks are ready", within=SOON)
    await kubectl("delete", "pod", "scheduler-bridge-0", f"--namespace={OURS}", "--wait=false")  # neither needs it
    await kubectl("apply", "-f", "-", stdin=json.dumps(file))
    made = await api.get("Job", namespace, "by-hand")
    assert made is not None
    assert "forebay.dev/instrumented" in made["metadata"]["annotations"]

    async def known() -> str | None:
        with contextlib.suppress(Refused, Unreachable):
            return str((await deployed.why("by-hand"))["job"])
        return None

    job = await eventually(known, what="by-hand is a job", within=SOON)
    await deployed.ready(job, manifest=manifest)
    done = await deployed.until(job, lambda found: found["state"] == "SUCCEEDED", "it succeeds")
    (attempt,) = done["attempts"]
    assert attempt["preflight"]["passed"] is True
    assert "PreflightReported" in [entry["event"] for entry in await deployed.history(job)], "its pod speaks on the bus"


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 an address of this test
        return str(answer.read().decode())

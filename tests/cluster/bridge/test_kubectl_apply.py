"""A plain Job by `kubectl apply`: the webhook gates it, it waits for its data like any job, and runs; away, it fails open."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets
from forebay.runtime.errors import Refused
from forebay.testcluster import build
from forebay.testcluster.api import Api, condition
from forebay.testcluster.cluster import TestCluster

from tests.cluster.queues import Queues
from tests.eventually import eventually

from .test_training_in_pods import claim, version
from .world import DEPLOY, SOON, Bridge, address_of_this_machine, running_bridge

pytestmark = pytest.mark.timeout(400)
Json = dict[str, Any]


class Shell:
    """Somebody at a keyboard, with kubectl and a bridge that has a webhook."""

    def __init__(self, bridge: Bridge, kubectl: list[str], manifest: str) -> None:
        self.bridge = bridge
        self.manifest = manifest
        self._kubectl = kubectl

    async def run(self, *words: str, stdin: str = "") -> tuple[int, str]:
        command = [*self._kubectl, f"--namespace={self.bridge.namespace}", *words]
        done = await asyncio.to_thread(
            subprocess.run, command, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    async def apply(self, job: Json) -> str:
        code, said = await self.run("apply", "-f", "-", stdin=json.dumps(job))
        assert code == 0, said
        return said

    async def known(self, name: str, *, since: str = "") -> str:
        """The id of the newest job of a name, once it is another than `since`."""

        async def look() -> str | None:
            with suppress(Refused):
                found = str((await self.bridge.why(name))["job"])
                return found if found != since else None
            return None

        return str(await eventually(look, what=f"{name} is a job", within=SOON))


def plain_job(name: str, script: str, image: str, *, asks: str = "reach@train-ready") -> Json:
    """What people write."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {"forebay.dev/dataset": asks},
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.fixture
async def shell(
    *, cluster: TestCluster, api: Api, namespace: str, queues: Queues, agent: str, tmp_path: Path
) -> AsyncIterator[Shell]:
    """The webhook as `deploy/kubernetes` sets it up, for this namespace and by address."""
    del agent  # on the node
    await queues.make({"cpu": "1", "memory": "2Gi"}, name="main")
    address, tls = await address_of_this_machine(cluster, api), tmp_path / "tls"
    await asyncio.to_thread(subprocess.run, [str(DEPLOY / "certificate.sh"), str(tls), address], check=True)
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
    configuration = _configuration(namespace, f"https://{address}:{port}/mutate", tls)
    settings = {"FOREBAY_WEBHOOK_TLS": str(tls), "FOREBAY_WEBHOOK_PORT": str(port)}
    kubectl = [str(build.kubectl()), f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={tmp_path / 'kubectl'}"]
    async with running_bridge(cluster, api, namespace, tmp_path, **settings) as bridge:
        await bridge.start_registry()
        await bridge.start_webhook()
        await claim(api, namespace, "pool", tmp_path / "pool")
        made = Shell(bridge, kubectl, version(tmp_path / "pool/reach/v1"))
        await api.create(configuration)
        try:
            await eventually(lambda: _in_force(made), what="the API server asks the webhook", within=SOON)
            yield made
        finally:
            await api.delete("MutatingWebhookConfiguration", None, configuration["metadata"]["name"])
            await api.delete("PersistentVolume", None, f"{namespace}-pool")


def _configuration(namespace: str, url: str, tls: Path) -> Json:
    """Of this namespace alone, and by address."""
    *_, found = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
    found["metadata"]["name"] += f"-{namespace}"
    (webhook,) = found["webhooks"]
    bundle = base64.b64encode((tls / "tls.crt").read_bytes()).decode()
    webhook["clientConfig"] = {"url": url, "caBundle": bundle}
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    configuration: Json = found
    return configuration


async def _in_force(shell: Shell) -> bool:
    """A Job that cannot be understood is refused, with the sentence."""
    job = plain_job("no", "true", "x", asks="reach@@")
    code, said = await shell.run("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(job))
    return code != 0 and "forebay.dev/dataset" in said


async def test_an_applied_job_waits_for_its_data_and_runs(
    shell: Shell, api: Api, namespace: str, queues: Queues, image: str
) -> None:
    """0 quota while the data is not ready, the reason in `why` and on the Job; then the data where it was asked for."""
    bridge, file = shell.bridge, plain_job("by-hand", "cat {data:reach}/meta/info.json", image)
    await shell.apply(file)
    job = await shell.known("by-hand")

    async def gated() -> bool:
        found = condition(await api.workload_of(namespace, "by-hand") or {}, "QuotaReserved")
        return found is not None and found["reason"] == "AdmissionGated"

    await eventually(gated, what="Kueue says AdmissionGated", within=SOON)
    refused = datasets.LeaseRefused(
        job=job, input="dataset:reach@train-ready", reason=Reason.DATASET_NOT_READY, message="reach is being uploaded"
    )
    await bridge.say(refused)
    verdict = await bridge.cause(job, "DatasetNotReady")
    assert verdict["layer"] == "data"

    async def annotated() -> bool:
        found = await api.get("Job", namespace, "by-hand")
        return found is not None and "reach is being" in found["metadata"]["annotations"].get("forebay.dev/why", "")

    await eventually(annotated, what="the Job carries the sentence", within=SOON)
    await shell.apply(file)  # the same file again is no error
    assert await gated()
    assert await bridge.quota_used(queues.behind("main")) == 0
    await bridge.ready(job, manifest=shell.manifest)
    done = await bridge.until(job, lambda found: found["state"] == "SUCCEEDED", "it succeeds")
    (attempt,) = done["attempts"]
    assert attempt["preflight"]["passed"] is True
    assert "PreflightReported" in [entry["event"] for entry in await bridge.history(job)], "its pod speaks on the bus"
    (pod,) = await api.pods_of(namespace, "by-hand")
    assert "codebase_version" in await api.log(namespace, pod["metadata"]["name"], "main")
    await shell.run("delete", "job", "by-hand")
    await shell.apply(file)
    again = await shell.known("by-hand", since=job)
    assert (await bridge.why(job))["state"] == "SUCCEEDED", "deleted after its end"
    await shell.run("delete", "job", "by-hand")
    await bridge.until(again, lambda found: found["state"] == "CANCELLED", "who deletes it cancels it")


async def start_unseen(shell: Shell, api: Api, namespace: str, job: Json) -> None:
    """Apply a Job that has its quota and its pod before the bridge sees it."""
    await shell.bridge.stop()
    await shell.apply(job)
    await eventually(lambda: api.pods_of(namespace, job["metadata"]["name"]), what="it has a pod", within=SOON)
    await shell.bridge.start()


async def test_while_the_webhook_is_away_a_job_is_made_and_said_to_be_ungated(
    shell: Shell, api: Api, namespace: str, image: str
) -> None:
    """It fails open; the bridge finds the Job when it is back, follows it, and says what it does without."""
    await shell.bridge.stop_webhook()
    await start_unseen(shell, api, namespace, plain_job("early", "sleep 600", image))
    job = await shell.known("early")
    running = await shell.bridge.until(job, lambda found: found["state"] == "RUNNING", "it runs")
    assert "while Forebay's webhook was away" in running["verdict"]["message"]
    (pod,) = await api.pods_of(namespace, "early")
    assert "initContainers" not in pod["spec"]
    await shell.run("delete", "job", "early")
    await shell.bridge.until(job, lambda found: found["state"] == "CANCELLED", "who deletes it cancels it")


async def test_what_came_past_the_webhook_and_holds_nothing_is_stopped(
    shell: Shell, api: Api, namespace: str, queues: Queues, image: str
) -> None:
    """Behind a full queue it never gets quota, also when there is room; applied again, it waits for its data."""
    await shell.bridge.stop_webhook()
    await start_unseen(shell, api, namespace, plain_job("full", "sleep 600", image))
    first = await shell.known("full")
    await shell.bridge.until(first, lambda found: found["state"] == "RUNNING", "it holds the queue")
    early = plain_job("early", "sleep 600", image)
    (container,) = early["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "995m"
    await shell.apply(early)
    job = await shell.known("early")
    verdict = await shell.bridge.cause(job, "WebhookUnavailable")
    assert "kubectl delete job early" in verdict["next_action"]
    workload = await api.workload_of(namespace, "early")
    assert workload is not None
    assert workload["spec"]["active"] is False
    assert (await api.workload_of(namespace, "full") or {})["spec"].get("active", True), "what holds quota is only told"

    async def annotated() -> bool:
        found = await api.get("Job", namespace, "early")
        return found is not None and "apply -f" in found["metadata"]["annotations"].get("forebay.dev/why", "")

    await eventually(annotated, what="the Job carries the sentence", within=SOON)
    await shell.run("delete", "job", "full")
    await shell.bridge.until(first, lambda found: found["state"] == "CANCELLED", "there is room")

    async def free() -> bool:
        return await shell.bridge.quota_used(queues.behind("main")) == 0

    await eventually(free, what="the queue is free, and stays so", within=SOON)
    assert await api.pods_of(namespace, "early") == []
    await shell.bridge.start_webhook()
    await eventually(lambda: _in_force(shell), what="the API server asks the webhook", within=SOON)
    await shell.run("delete", "job", "early")
    await shell.apply(early)
    again = await shell.known("early", since=job)
    assert (await shell.bridge.why(again))["state"] != "RUNNING"
    found = await api.get("Job", namespace, "early")
    assert found is not None
    assert "forebay.dev/instrumented" in found["metadata"]["annotations"]
    await shell.run("delete", "job", "early")


async def test_a_secret_that_is_written_out_is_refused(shell: Shell, image: str) -> None:
    """Where it stands and what to do, and not the secret itself."""
    job = plain_job("leaks", "true", image)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "WANDB_API_KEY", "value": "hunter2hunter2"}]
    code, said = await shell.run("apply", "-f", "-", stdin=json.dumps(job))
    assert code != 0
    assert "containers[0].env[0].value" in said
    assert "secretKeyRef" in said
    assert "hunter2" not in said

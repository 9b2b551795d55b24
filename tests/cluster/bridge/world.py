"""A bridge of its own process against a real cluster, with a real bus; tests play ingest and cache."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.catalogue import spec_of
from forebay.contracts.envelope import Event
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.v1 import cache, datasets
from forebay.local.identities import ISSUER
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.testcluster import build
from forebay.testcluster.api import Api
from forebay.testcluster.cluster import TestCluster

from tests.cluster import our_images
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

PROJECT = "arm-lab"
SOON = 90.0
"""Two cores may be busy with other things."""
DEPLOY = Path(__file__).parents[3] / "deploy/kubernetes"
OPERATOR = Source(Part.OPERATOR)
Json = dict[str, Any]


@dataclass
class Bridge:
    """One bridge; `kill` and `start` are what a crash and its restart are."""

    server: NatsServer
    client: Client
    api: Api
    namespace: str
    folder: Path
    environment: dict[str, str]
    process: asyncio.subprocess.Process | None = None
    registry: asyncio.subprocess.Process | None = None
    webhook: asyncio.subprocess.Process | None = None
    _said: int = field(default=0)

    async def launch(self) -> asyncio.subprocess.Process:
        """Start its process, and wait for nothing."""
        self.process = await self._run("scheduler_bridge", self.environment)
        return self.process

    async def start(self) -> None:
        await self.launch()
        await eventually(self._answers, what="the bridge answers", within=SOON)

    async def start_registry(self) -> None:
        """A registry, which a second attempt asks where to continue."""
        keys = {"FOREBAY_NKEY_FILE": str(self.server.key(Source(Part.REGISTRY)))}
        store = {"FOREBAY_STORE": str(self.folder / "registry.sqlite")}
        self.registry = await self._run("registry", self.environment | keys | store)

    async def start_webhook(self) -> None:
        """The webhook's own process."""
        self.webhook = await self._run("scheduler_bridge.webhook", self.environment)

    async def stop_webhook(self) -> None:
        """As when its node is lost."""
        if self.webhook is not None and self.webhook.returncode is None:
            self.webhook.kill()
            await self.webhook.wait()

    async def _run(self, service: str, environment: dict[str, str]) -> asyncio.subprocess.Process:
        name = "bridge.log" if service == "scheduler_bridge" else f"{service}.log"
        with (self.folder / name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"forebay.{service}", env=environment, stdout=log, stderr=log
            )

    async def close(self) -> None:
        """Stop all of them."""
        await self.stop()
        await self.stop_webhook()
        if self.registry is not None and self.registry.returncode is None:
            self.registry.terminate()
            await self.registry.wait()

    async def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, (self.folder / "bridge.log").read_text()[-3000:]
        with contextlib.suppress(Unreachable, Refused):
            await self.client.ask("scheduler-bridge", PROJECT, "jobs", timeout=2)
            return True
        return False

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(how)
            await self.process.wait()

    async def say(self, body: EventBody) -> None:
        """Publish as the part that owns the event."""
        self._said += 1
        part = spec_of(type(body)).owners[0]
        source = Source(part, PROJECT if part in PROJECT_PARTS else None)
        event: Event[EventBody] = Event(id=f"test-{body.event}-{self._said}", source=source, project=PROJECT, body=body)
        async with Client.connect(self.server.url, self.server.key(source), source) as client:
            await client.publish(event)

    async def submit(self, name: str, *command: str, **fields: Any) -> str:
        """Submit a job; `command` is for a shell."""
        spec: Json = {"name": name, "image": "forebay.test/busybox:1", "command": ["sh", "-c", " ".join(command)]}
        spec |= {"resources": {"cpu": "10m", "memory": "32Mi"}, "pod": {"imagePullPolicy": "IfNotPresent"}} | fields
        answer = await self.client.ask("scheduler-bridge", PROJECT, "submit", {"spec": spec, "wait_for_dataset": True})
        return str(answer.result["job"])

    async def why(self, job: str) -> Json:
        return (await self.client.ask("scheduler-bridge", PROJECT, "why", {"job": job})).result

    async def until(self, job: str, holds: Callable[[Json], bool], what: str, *, within: float = SOON) -> Json:
        """The answer of `why` once `holds` of it."""
        last: Json = {}

        async def look() -> Json | None:
            nonlocal last
            with contextlib.suppress(Unreachable):
                last = await self.why(job)
            return last if last and holds(last) else None

        try:
            found = await eventually(look, what=what, within=within)
        except AssertionError as error:
            verdict = json.dumps(last.get("verdict"), indent=1)
            log = (self.folder / "bridge.log").read_text()[-2500:]
            entries = [
                f"{item.get('object')} {item.get('reason')} {item['message']}" for item in await self.history(job)
            ]
            verdict += "\n" + "\n".join([*entries[-15:], *self._open_work()])
            raise AssertionError(
                f"{error}\nlast answer: {last.get('sentence')}\n{verdict}\nbridge.log: {log}"
            ) from error
        assert isinstance(found, dict)
        return found

    def _open_work(self) -> list[str]:
        """What the bridge still has to do, and why it did not succeed so far."""
        with contextlib.closing(sqlite3.connect(self.folder / "state.sqlite")) as store:
            rows = store.execute("SELECT body FROM documents WHERE kind = '_work'").fetchall()
        records = [json.loads(body) for (body,) in rows]
        return [f"{one['item']} {one['state']} {one['last_error']}" for one in records if one["state"] != "done"]

    async def cause(self, job: str, cause: str, *, within: float = SOON) -> Json:
        """The verdict, once its cause is this one."""
        answer = await self.until(
            job, lambda found: found["verdict"]["cause"] == cause, f"{job} waits for {cause}", within=within
        )
        verdict: Json = answer["verdict"]
        return verdict

    async def history(self, job: str) -> list[Json]:
        found: list[Json] = (
            await self.client.ask("scheduler-bridge", PROJECT, "job", {"job": job, "limit": 1000})
        ).result["history"]
        return found

    async def quota_used(self, queue: str) -> int:
        """Workloads that hold quota of a ClusterQueue."""
        found = await self.api.get("ClusterQueue", None, queue)
        assert found is not None
        return int((found.get("status") or {}).get("reservingWorkloads", 0))

    async def ready(
        self, job: str, root: str = "/pool/reach/v1", manifest: str = "a" * 64, node: str | None = None
    ) -> None:
        """Ingest leases and the cache is warm (on one node, when it is named): everything the gate waits for."""
        await self.leased(job, root=root, manifest=manifest)
        plan = f"plan-{job}"
        await self.say(
            cache.CachePlanned(
                plan=plan,
                job=job,
                digest="a" * 64,
                name="reach",
                number=1,
                root=root,
                files=1,
                total_bytes=10,
                aligned_bytes=10,
                whole_bytes=10,
                ranges=FileRef(uri="file:///plan", sha256="a" * 64, bytes=1),
            )
        )
        warm = cache.CacheReady(
            plan=plan,
            name="reach",
            number=1,
            verified_bytes=10,
            origin_bytes=10,
            place=root,
            adapter="folder",
            proof="readable",
            seconds=0,
            node=node,
        )
        await self.say(warm)

    async def leased(
        self,
        job: str,
        name: str = "reach",
        number: int = 1,
        *,
        root: str = "/pool/reach/v1",
        manifest: str = "a" * 64,
    ) -> None:
        """Ingest pins the job's dataset."""
        pin = datasets.PinnedInput(
            kind="dataset",
            logical=f"dataset:{name}@train-ready",
            name=name,
            number=number,
            root=root,
            manifest_sha256=manifest,
            bytes=1000,
        )
        await self.say(datasets.LeaseGranted(job=job, inputs=(pin,)))


@asynccontextmanager
async def running_bridge(
    cluster: TestCluster, api: Api, namespace: str, folder: Path, **settings: str
) -> AsyncIterator[Bridge]:
    """A bridge that runs as the account of `deploy/kubernetes`, for the queue `main` of a namespace."""
    kubectl = [str(build.kubectl()), f"--kubeconfig={cluster.kubeconfig}"]
    own = service_account(cluster.kubeconfig, kubectl, folder, namespace)
    classes = [f"{namespace}-low", f"{namespace}-high"]
    tolerated = {"tolerations": ["kwok.x-k8s.io/node"]}
    projects = project_file(folder, namespace, ("main",), priority_classes=classes, pod=tolerated)
    async with nats_server(folder / "home", PROJECT, pods=True) as server, relay(server.port) as port:
        bus = f"nats://{await address_of_this_machine(cluster, api)}:{port}"
        variables = environment(server, folder, own, projects, bus) | settings
        async with Client.connect(server.url, server.key(OPERATOR), OPERATOR) as client:
            running = Bridge(
                server=server, client=client, api=api, namespace=namespace, folder=folder, environment=variables
            )
            await running.start()
            try:
                yield running
            finally:
                await running.close()


async def address_of_this_machine(cluster: TestCluster, api: Api) -> str:
    """As pods and the API server reach it."""
    node = await api.get("Node", None, cluster.node)
    assert node is not None
    return str(next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"))


def run(kubectl: list[str], *words: str, stdin: str | None = None) -> str:
    """What kubectl prints; it must succeed."""
    done = subprocess.run([*kubectl, *words], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {words}: {done.stderr}"
    return done.stdout


def account(kubectl: list[str], namespace: str) -> None:
    """Make the bridge's account, and let it do its work in this namespace."""
    run(kubectl, "apply", "-f", str(DEPLOY / "bridge-rbac.yaml"))
    bound = (DEPLOY / "project-rbac.yaml").read_text().replace("PROJECT-NAMESPACE", namespace)
    run(kubectl, "apply", "-f", "-", stdin=bound)


def service_account(api_kubeconfig: Path, kubectl: list[str], folder: Path, namespace: str) -> Path:
    """A kubeconfig of the account that `deploy/kubernetes` makes, bound in this namespace."""
    account(kubectl, namespace)
    token = run(kubectl, "create", "token", "scheduler-bridge", "-n", "forebay", "--duration=4h").strip()
    config = yaml.safe_load(api_kubeconfig.read_text())
    config["users"] = [{"name": "bridge", "user": {"token": token}}]
    for context in config["contexts"]:
        context["context"]["user"] = "bridge"
    path = folder / "bridge.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def project_file(folder: Path, namespace: str, queues: tuple[str, ...], **more: Any) -> Path:
    """A folder with the project's file."""
    projects = folder / "projects"
    projects.mkdir(exist_ok=True)
    content: Json = {
        "project": PROJECT,
        "namespace": namespace,
        "queues": list(queues),
        "data": {"pvc": "pool", "root": "/pool"},
        "preflight": {"skip": ["gpu", "shm", "data-mode"]},
        "mounts": {"pvcs": ["*"], "configmaps": ["*"], "secrets": ["*"]},
        "node_lost_seconds": 5,
        **more,
    }
    (projects / f"{PROJECT}.yaml").write_text(yaml.safe_dump(content))
    return projects


@asynccontextmanager
async def relay(port: int) -> AsyncIterator[int]:
    """The bus listens on this machine's loopback; pods reach it through a port on every address."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))

    listener = await asyncio.start_server(carry, "0.0.0.0", 0)  # noqa: S104 pods come from the cluster's own network
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def environment(server: NatsServer, folder: Path, kubeconfig: Path, projects: Path, bus: str) -> dict[str, str]:
    """What the bridge's process is told."""
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},  # noqa: TID251 for a child
        "FOREBAY_BACKEND": "kubernetes",
        "FOREBAY_KUBECONFIG": str(kubeconfig),
        "FOREBAY_PROJECTS": str(projects),
        "FOREBAY_HOME": str(folder),
        "FOREBAY_STORE": str(folder / "state.sqlite"),
        "FOREBAY_NATS_URL": server.url,
        "FOREBAY_NKEY_FILE": str(server.key(Source(Part.BRIDGE))),
        "FOREBAY_AGENT_IMAGE": our_images.AGENT,
        "FOREBAY_AGENT_NATS_URL": bus,
        "FOREBAY_ATTEMPT_ISSUER": str(server.home.key(ISSUER)),
    }

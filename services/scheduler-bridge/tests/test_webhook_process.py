"""The webhook as a process: it needs no bus, no store and no cluster that answers; its health is on a port of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import yaml
from forebay.local.home import free_port
from forebay.scheduler_bridge.domain import pod_layout as layout

from tests.eventually import eventually

from .cluster_jobs import project_file
from .test_admission import review
from .test_admission_server import asked, make_certificate, patch_of
from .test_instrument import plain_job

MODULE = "forebay.scheduler_bridge.webhook"


def settings(folder: Path, port: int, health: int) -> dict[str, str]:
    """A project file, and a cluster that nobody can reach."""
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    config = {"clusters": [cluster], "contexts": [context], "current-context": "c", "users": users}
    (folder / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    (folder / "projects").mkdir()
    file = json.loads(project_file().model_dump_json(exclude_defaults=True))
    (folder / "projects/arm-lab.yaml").write_text(yaml.safe_dump(file))
    return {
        "FOREBAY_BACKEND": "kubernetes",
        "FOREBAY_KUBECONFIG": str(folder / "kubeconfig"),
        "FOREBAY_PROJECTS": str(folder / "projects"),
        "FOREBAY_WEBHOOK_TLS": str(folder / "tls"),
        "FOREBAY_WEBHOOK_PORT": str(port),
        "FOREBAY_HEALTH_PORT": str(health),
    }


def status(port: int, path: str) -> int:
    """0 when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


async def test_it_answers_alone_and_ends_when_told(tmp_path: Path) -> None:
    """Alive before it has a certificate, ready once it has; a Job gets the gate that is always safe."""
    port, health = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, env=settings(tmp_path, port, health), stderr=asyncio.subprocess.PIPE
    )

    async def says(path: str, wanted: int) -> bool:
        assert process.returncode is None
        return await asyncio.to_thread(status, health, path) == wanted

    try:
        await eventually(lambda: says("/livez", 200), what="it is alive", within=60)
        assert await says("/readyz", 503)
        tls = make_certificate(tmp_path / "tls")
        await eventually(lambda: says("/readyz", 200), what="it is ready", within=30)
        answered, found = await asked(port, tls, review(plain_job()))
        assert answered == 200
        assert layout.WAITING_QUEUE in patch_of(found)
        assert await says("/healthz", 200)
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(process.communicate(), 30)  # noqa: TID251 nothing here is cancelled
    assert process.returncode == 0, said.decode()[-2000:]


async def test_without_a_certificate_it_says_what_to_set(tmp_path: Path) -> None:
    """Exit code 1 and one sentence."""
    environment = settings(tmp_path, free_port(), free_port())
    del environment["FOREBAY_WEBHOOK_TLS"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert "FOREBAY_WEBHOOK_TLS is not set" in said.decode()
    assert "Traceback" not in said.decode()

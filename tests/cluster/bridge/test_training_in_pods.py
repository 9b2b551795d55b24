"""What is rendered works on a real cluster: `lerobot-train` resumes, a gang finds its master, wrong data never starts."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.registry.app import definition
from forebay.registry.domain.decide import VERIFY
from forebay.registry.settings import RegistrySettings
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier
from forebay.runtime.app import run_service
from forebay.testcluster.api import Api, condition, path_of

from tests.cluster.queues import Queues
from tests.servers.pods import LEROBOT

from .world import Bridge, project_file

pytestmark = pytest.mark.timeout(420)
GOLDEN = Path(__file__).parents[3] / "services/scheduler-bridge/tests/golden"
LONG = 240.0
"""Two pods one after the other, each with its checks, on a machine that does other things too."""
Json = dict[str, Any]


class Lab:
    """A pool with one version, a claim for outputs, LeRobot's stand-in, and a registry that sees the same files."""

    def __init__(self, bridge: Bridge, manifest: str) -> None:
        self.bridge = bridge
        self.manifest = manifest

    async def train(self, name: str, *options: str, **fields: Any) -> str:
        """Submit a run of lerobot-train on the dataset, and let its data be ready."""
        command = ["sh", "/opt/lerobot/lerobot-train", "--dataset.root={data:reach}", *options]
        job = await self.bridge.submit(
            name,
            command=command,
            mounts="lerobot(configmap):/opt/lerobot",
            datasets=[{"name": "reach"}],
            wait_for_dataset=True,
            **fields,
        )
        await self.bridge.ready(job, manifest=self.manifest)
        return job

    async def logs(self, job: str) -> list[str]:
        """What the training containers printed, oldest pod first."""
        pods = await self.bridge.api.pods_of(self.bridge.namespace, job)
        ordered = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [await self.bridge.api.log(self.bridge.namespace, pod["metadata"]["name"], "train") for pod in ordered]


async def claim(api: Api, namespace: str, name: str, folder: Path) -> None:
    """A claim that is a folder of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **common,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": name},
    }
    await api.create({"kind": "PersistentVolume", "metadata": {"name": f"{namespace}-{name}"}, "spec": volume})
    asked = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{namespace}-{name}"}
    await api.create(
        {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": asked}
    )


def version(folder: Path) -> str:
    """A LeRobot root with the list of its files; returns that list's digest."""
    info = folder / "meta/info.json"
    info.parent.mkdir(parents=True)
    info.write_text('{"codebase_version": "v3.0"}', encoding="utf-8")
    entry = {"path": "meta/info.json", "sha256": "0" * 64, "bytes": info.stat().st_size}
    content = json.dumps({"files": [entry]}).encode()
    (folder / "forebay-manifest.json").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
async def lab(bridge: Bridge, api: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Lab]:
    """Everything a training needs, in folders of this test."""
    home, pool = bridge.server.home.root, tmp_path / "pool"
    manifest = version(pool / "reach/v1")
    await claim(api, namespace, "pool", pool)
    await claim(api, namespace, "train-output", home / "jobs")
    script = {"lerobot-train": LEROBOT.read_text(encoding="utf-8")}
    await api.create({"kind": "ConfigMap", "metadata": {"name": "lerobot", "namespace": namespace}, "data": script})
    await bridge.stop()
    project_file(tmp_path, namespace, ("main",), outputs={"pvc": "train-output", "root": f"file://{home}/jobs"})
    await bridge.start()
    settings = RegistrySettings(
        home=home,
        nats_url=bridge.server.url,
        nkey_file=bridge.server.key(definition().source),
        store=tmp_path / "registry.sqlite",
    )
    workers = {VERIFY: CheckpointVerifier(settings.roots())}
    registry = asyncio.create_task(run_service(definition(), settings, workers))
    yield Lab(bridge, manifest)
    registry.cancel()
    with suppress(asyncio.CancelledError):
        await registry
    for name in ("pool", "train-output"):
        await api.delete("PersistentVolume", None, f"{namespace}-{name}")


async def test_lerobot_resumes_where_last_points(lab: Lab) -> None:
    """Killed in the middle of a save: the next pod of the same Job goes on at the save that was finished."""
    options = ("--output_dir=/forebay/output/train", "--steps=60", "--save_freq=20")
    job = await lab.train("pick", *options, environment={"DIE_AT": "50"})
    done = await lab.bridge.until(job, lambda found: found["state"] == "SUCCEEDED", "it succeeds", within=LONG)
    assert [item["attempt"] for item in done["attempts"]] == [1, 2]
    first, second = await lab.logs(job)
    assert "training from step 0 to 60" in first.splitlines()  # the shell's "Killed" comes on another stream
    assert second == "training from step 40 to 60\nended at step 60\n"
    found = await lab.bridge.api.get("Job", lab.bridge.namespace, job)
    assert found is not None
    assert found["status"]["succeeded"] == 1


async def test_another_version_than_the_pinned_one_fails_at_once(lab: Lab) -> None:
    """Exit code 201 of the checks: the Job fails by its policy, without another attempt, and the report is readable."""
    lab.manifest = "b" * 64
    job = await lab.train("wrong", "--output_dir=/forebay/output/train", restart={"max_attempts": 5})
    done = await lab.bridge.until(job, lambda found: found["state"] == "FAILED", "it fails", within=LONG)
    assert [item["attempt"] for item in done["attempts"]] == [1]
    assert "the job pinned 1/bbbbbbbbbbbb" in done["sentence"]
    found = await lab.bridge.api.get("Job", lab.bridge.namespace, job)
    failed = condition(found or {}, "Failed")
    assert failed is not None
    assert failed["reason"] == "PodFailurePolicy"
    (pod,) = await lab.bridge.api.pods_of(lab.bridge.namespace, job)
    prepare = next(item for item in pod["status"]["initContainerStatuses"] if item["name"] == "forebay-prepare")
    ended = prepare["state"]["terminated"]
    assert ended["exitCode"] == 201
    assert json.loads(ended["message"])["exit_code"] == 201


async def test_a_gang_of_two_finds_its_master(bridge: Bridge) -> None:
    """Rank 1 reaches rank 0 by MASTER_ADDR, before either is ready."""
    script = (
        'if [ "$RANK" = 0 ]; then nc -l -p "$MASTER_PORT"; else'
        ' until echo "rank $RANK of $WORLD_SIZE" | nc -w 2 "$MASTER_ADDR" "$MASTER_PORT"; do sleep 0.2; done; fi'
    )
    job = await bridge.submit("gang", script, nodes=2)
    await bridge.until(job, lambda found: found["state"] == "SUCCEEDED", "the gang succeeds", within=LONG)
    pods = await bridge.api.pods_of(bridge.namespace, job)
    logs = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: await bridge.api.log(
            bridge.namespace, pod["metadata"]["name"], "train"
        )
        for pod in pods
    }
    assert logs["0"] == "rank 1 of 2\n"  # rank 1's own log tells of its tries before


@pytest.mark.parametrize("name", ["one_pod", "lerobot", "gang"])
async def test_the_api_server_takes_what_the_golden_files_show(
    api: Api, namespace: str, queues: Queues, name: str
) -> None:
    """Every field, with Kueue's webhooks: a dry run on the server."""
    del queues
    for item in yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")):
        item["metadata"]["namespace"] = namespace
        where = path_of(item["kind"], namespace) + "?dryRun=All&fieldValidation=Strict"
        taken = await api.json("POST", where, item)
        assert taken["metadata"]["name"] == item["metadata"]["name"]

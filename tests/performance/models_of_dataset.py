"""The one question of `bench_registry` that MLflow answers too: which models used this dataset version?

A smaller history of the same kind, because MLflow takes tens of milliseconds for each run that it is
told of. All three answers must be the same set of model versions, else the figures are worth nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from forebay.contracts.v1 import datasets, models
from forebay.registry.app import definition
from forebay.runtime.engine import Engine
from forebay.runtime.machine import Request
from forebay.runtime.rebuild import rebuild
from forebay.runtime.settings import environment
from forebay.runtime.stores.sqlite import SqliteStore

from tests.performance.figures import Figure
from tests.performance.plain_lineage import PlainLineage
from tests.performance.registry_history import PROJECT, History, Size, batches

MLFLOW = "mlflow==3.17.2"
_SCALE, _ASKED = 0.04, 30
"""80 versions, 200 jobs, 400 models."""
_HERE = Path(__file__).parent


class Told(msgspec.Struct):
    """What `mlflow_search.py` prints."""

    version: str
    fill_s: float
    ms: list[float]
    answers: list[list[str]]


def _uv() -> str | None:
    place = environment().get("UV") or shutil.which("uv")
    local = _HERE.parents[1] / ".tools" / "bin" / "uv"
    return place or (str(local) if local.exists() else None)


async def _jobs(spool: Path) -> list[dict[str, Any]]:
    """Each job with the version it read and the models it made, from the messages themselves."""
    found: dict[str, dict[str, Any]] = {}
    async for batch in batches(spool):
        for message in batch:
            match message.decode().body:
                case datasets.LeaseGranted(job=job, inputs=(pinned, *_)):
                    read = f"{pinned.name}@v{pinned.number}"
                    found[job] = {"job": job, "dataset": read, "root": pinned.root, "models": []}
                case models.ModelVersionRegistered() as made:
                    model = {"name": made.model, "number": made.number, "uri": made.uri}
                    found[made.job]["models"].append(model)
                case _:
                    pass
    return list(found.values())


async def _mlflow(uv: str, history: Path, store: Path) -> Told | None:
    run = ("run", "--no-project", "--quiet", "--python", sys.executable, "--with", MLFLOW, "python")
    command = (uv, *run, str(_HERE / "mlflow_search.py"), str(history), str(store))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, trouble = await process.communicate()
    if process.returncode:
        sys.stderr.write(f"MLflow was not measured: {trouble.decode(errors='replace')[-400:]}\n")
        return None
    return msgspec.json.decode(said.strip().splitlines()[-1], type=Told)


async def _ours(engine: Engine, version: str) -> list[str]:
    """The question `search`, page by page until it is complete."""
    found: list[str] = []
    after: str | None = None
    while True:
        args: dict[str, Any] = {"dataset": version, "limit": 500} | ({} if after is None else {"after": after})
        request = Request(id="", project=PROJECT, by="bench", args=args, now=datetime.now(UTC))
        answer = await engine.question("search", request)
        found += [f"{one['model']}@v{one['number']}" for one in answer["models"]]
        after = answer["after"]
        if after is None:
            return sorted(found)


async def _timed(ask: Callable[[str], Awaitable[list[str]]], ids: list[str]) -> tuple[list[float], list[list[str]]]:
    wall, answers = [], []
    for one in ids:
        began = time.perf_counter()
        answers.append(await ask(one))
        wall.append(1000 * (time.perf_counter() - began))
    return wall, answers


async def models_of_dataset(folder: Path) -> None:
    """Fold the smaller history three times, ask the same versions, and print the figures."""
    (folder / "lists").mkdir(parents=True)
    made = History(Size(_SCALE), folder / "lists").spool(folder / "log")
    jobs = await _jobs(folder / "log")
    used = sorted({job["dataset"] for job in jobs})
    ask = random.Random(5).sample(used, min(_ASKED, len(used)))  # noqa: S311 a chosen order, no secret
    (folder / "history.json").write_text(json.dumps({"jobs": jobs, "ask": ask}), encoding="utf-8")
    uv = _uv()
    told = None if uv is None else await _mlflow(uv, folder / "history.json", folder / "mlflow.sqlite")
    plain = PlainLineage(folder / "plain.sqlite")
    await plain.fold(batches(folder / "log"))
    await rebuild(definition(), batches(folder / "log"), folder / "registry.sqlite")
    store = SqliteStore(folder / "registry.sqlite", fold_version=definition().fold_version)
    await store.acquire("bench", ttl_s=600)
    engine = Engine(definition(), store)
    await engine.open()

    async def plainly(version: str) -> list[str]:
        reached = plain.impact(f"dataset:{version}")
        return sorted(one.removeprefix("model:") for one in reached if one.startswith("model:"))

    ours, our_answers = await _timed(lambda version: _ours(engine, version), ask)
    cte, cte_answers = await _timed(plainly, ask)
    await store.close()
    plain.close()
    assert our_answers == cte_answers
    size = f"{len(jobs)} jobs, {len(made.models)} models"
    _print("models-of-dataset", ours, f"edges in one SQLite table, recursive queries; {size}", cte)
    if told is not None:
        assert our_answers == told.answers
        what = f"MLflow {told.version}, search_runs by dataset, then search_model_versions; {size}, no events, saves or episodes"
        _print("models-of-dataset", ours, what, told.ms)


def _print(name: str, ours: list[float], baseline: str, theirs: list[float]) -> None:
    for of, take in (("p50", statistics.median), ("p99", max)):
        Figure(name=f"{name}-{of}", value=take(ours), unit="ms", baseline=baseline, baseline_value=take(theirs)).print()

"""What MLflow answers to "which models used this dataset version": run by `bench_registry` in an environment of its own.

`uv run --no-project --with mlflow python mlflow_search.py HISTORY STORE`: HISTORY is a JSON file of jobs, each with the
version it read and the models it made, and of versions to ask for. Goes through MLflow's client straight to
its SQLite store, without a server between. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def fill(client: Any, jobs: list[dict[str, Any]]) -> dict[str, str]:
    """A run for each job with its dataset as an input, a model version for each model; returns experiment ids."""
    from mlflow.entities import (  # type: ignore[import-not-found]  # noqa: PLC0415 it is there only when this runs alone
        Dataset,
        DatasetInput,
    )

    experiment = client.create_experiment("jobs")
    names: set[str] = set()
    for job in jobs:
        run = client.create_run(experiment, run_name=job["job"])
        name, _, digest = job["dataset"].partition("@")
        read = Dataset(name=name, digest=digest, source_type="local", source=job["root"])
        client.log_inputs(run.info.run_id, [DatasetInput(read)])
        for model in job["models"]:
            if model["name"] not in names:
                names.add(model["name"])
                client.create_registered_model(model["name"])
            client.create_model_version(
                model["name"], model["uri"], run_id=run.info.run_id, tags={"version": str(model["number"])}
            )
    return {"experiment": experiment}


def models_of(client: Any, experiment: str, version: str) -> list[str]:
    """The runs that had the dataset as an input, and the model versions of those runs."""
    name, _, digest = version.partition("@")
    wanted = f"dataset.name = '{name}' AND dataset.digest = '{digest}'"
    runs: list[str] = []
    token = None
    while True:
        page = client.search_runs([experiment], wanted, max_results=1000, page_token=token)
        runs += [run.info.run_id for run in page]
        token = page.token
        if not token:
            break
    found: list[str] = []
    for start in range(0, len(runs), 100):
        some = ", ".join(f"'{run}'" for run in runs[start : start + 100])
        token = None
        while True:
            versions = client.search_model_versions(f"run_id IN ({some})", max_results=1000, page_token=token)
            found += [f"{one.name}@v{one.tags['version']}" for one in versions]
            token = versions.token
            if not token:
                break
    return sorted(found)


def main() -> None:
    import mlflow  # type: ignore[import-not-found]  # noqa: PLC0415 as above

    history = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    store = f"sqlite:///{sys.argv[2]}"
    client = mlflow.MlflowClient(tracking_uri=store, registry_uri=store)
    began = time.perf_counter()
    experiment = fill(client, history["jobs"])["experiment"]
    filled = time.perf_counter() - began
    answers, wall = [], []
    for version in history["ask"]:
        began = time.perf_counter()
        answers.append(models_of(client, experiment, version))
        wall.append(1000 * (time.perf_counter() - began))
    print(json.dumps({"version": mlflow.__version__, "fill_s": filled, "ms": wall, "answers": answers}))  # noqa: T201


if __name__ == "__main__":
    main()

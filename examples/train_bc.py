"""Behaviour cloning on the CPU: a small network learns what the demonstrations did.

Reads any LeRobot v3.0 dataset by logical name (`observation.state` -> `action`), so
the two-joint arm of `record_arm.py` and a 26-joint humanoid use the same script.
Numpy only: a multi-layer perceptron, Adam, a learning rate with warm-up and cosine
decay. Each checkpoint holds weights, optimizer, scheduler and the random state, so a
resumed run goes exactly the way an uninterrupted one would have gone.

    forebay run -- python examples/train_bc.py --dataset dataset:reach@train-ready
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from forebay import sdk
from safetensors.numpy import load_file, save_file

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Hyper-parameters; each may come from the command line or from the job's `parameters:`."""

    dataset: str = "dataset:reach@train-ready"
    steps: int = 2400
    batch: int = 256
    hidden: int = 192
    layers: int = 3
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 5e-2
    noise: float = 0.1
    """Random jitter of the standardised state: the policy must not learn single frames by heart."""
    checkpoint_every: int = 300
    report_every: int = 100
    held_out: float = 0.2
    seed: int = 1

    def rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then a cosine down to a hundredth."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, progress))) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Standardised inputs and outputs; whole episodes are held out."""

    train: tuple[Floats, Floats]
    held_out: tuple[Floats, Floats]
    scales: Tensors
    """Mean and deviation of both, kept in the checkpoint: a policy is useless without them."""


def load(dataset: sdk.Dataset, config: Config) -> Data:
    """Read state and action, and keep every n-th episode for the held-out loss."""
    every = max(2, round(1 / config.held_out))
    episodes = [episode.index for episode in dataset.episodes]
    held = set(episodes[every - 1 :: every]) or {episodes[-1]}
    if len(episodes) == 1:
        message = f"{dataset!r} has one episode only; at least two are needed to hold one out"
        raise SystemExit(message)

    def read(column: str, chosen: list[int]) -> Floats:
        return np.asarray(dataset.numpy(column, chosen), np.float32).reshape(
            sum(episode.length for episode in dataset.episodes if episode.index in set(chosen)), -1
        )

    train = [index for index in episodes if index not in held]
    x, y = read("observation.state", train), read("action", train)
    scales = {
        "state.mean": x.mean(0), "state.std": x.std(0) + np.float32(1e-4),
        "action.mean": y.mean(0), "action.std": y.std(0) + np.float32(1e-4),
    }  # fmt: skip
    x_held, y_held = read("observation.state", sorted(held)), read("action", sorted(held))
    return Data(train=_scaled(x, y, scales), held_out=_scaled(x_held, y_held, scales), scales=scales)


def _scaled(x: Floats, y: Floats, scales: Tensors) -> tuple[Floats, Floats]:
    return (x - scales["state.mean"]) / scales["state.std"], (y - scales["action.mean"]) / scales["action.std"]


def initial_weights(sizes: list[int], rng: np.random.Generator) -> Tensors:
    """He initialisation; the last layer starts small."""
    weights: Tensors = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        gain = math.sqrt(2 / inputs) * (0.1 if layer == len(sizes) - 2 else 1.0)
        weights[f"layer{layer}.weight"] = (rng.standard_normal((inputs, outputs)) * gain).astype(np.float32)
        weights[f"layer{layer}.bias"] = np.zeros(outputs, np.float32)
    return weights


def forward(weights: Tensors, x: Floats) -> list[Floats]:
    """Activations of every layer, the input first, the prediction last."""
    activations = [x]
    last = len(weights) // 2 - 1
    for layer in range(last + 1):
        x = x @ weights[f"layer{layer}.weight"] + weights[f"layer{layer}.bias"]
        if layer < last:
            x = np.maximum(x, 0)
        activations.append(x)
    return activations


def loss_and_gradients(weights: Tensors, x: Floats, y: Floats) -> tuple[float, Tensors]:
    """Mean squared error and its derivative in every weight."""
    activations = forward(weights, x)
    error = activations[-1] - y
    gradients: Tensors = {}
    upstream = error * np.float32(2 / error.size)
    for layer in reversed(range(len(weights) // 2)):
        gradients[f"layer{layer}.weight"] = activations[layer].T @ upstream
        gradients[f"layer{layer}.bias"] = upstream.sum(0)
        if layer:
            upstream = (upstream @ weights[f"layer{layer}.weight"].T) * (activations[layer] > 0)
    return float(np.mean(error**2)), gradients


def loss_of(weights: Tensors, part: tuple[Floats, Floats]) -> float:
    return float(np.mean((forward(weights, part[0])[-1] - part[1]) ** 2))


class Adam:
    """Adam with decoupled weight decay."""

    def __init__(self, weights: Tensors, moments: Tensors | None = None) -> None:
        self.moments = moments or {
            f"{name}.{moment}": np.zeros_like(value) for name, value in weights.items() for moment in ("mean", "square")
        }

    def update(self, weights: Tensors, gradients: Tensors, *, step: int, rate: float, decay: float) -> None:
        for name, gradient in gradients.items():
            mean, square = self.moments[f"{name}.mean"], self.moments[f"{name}.square"]
            mean += np.float32(0.1) * (gradient - mean)
            square += np.float32(0.001) * (gradient * gradient - square)
            unbiased = mean / np.float32(1 - 0.9 ** (step + 1))
            spread = np.sqrt(square / np.float32(1 - 0.999 ** (step + 1))) + np.float32(1e-8)
            weights[name] -= np.float32(rate) * (unbiased / spread + np.float32(decay) * weights[name])


class Batches:
    """An endless shuffled stream of row numbers that can be stopped and continued exactly."""

    def __init__(self, rows: int, batch: int, rng: np.random.Generator) -> None:
        self._rows, self._batch = rows, min(batch, rows)
        self.rng = rng
        self._order = np.empty(0, np.int64)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return self

    def __next__(self) -> npt.NDArray[np.int64]:
        while len(self._order) < self._batch:
            self._order = np.concatenate([self._order, self.rng.permutation(self._rows)])
        chosen, self._order = self._order[: self._batch], self._order[self._batch :]
        return chosen

    def state(self) -> dict[str, Any]:
        return {"generator": self.rng.bit_generator.state, "order": self._order.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["generator"]
        self._order = np.array(state["order"], np.int64)


@dataclass(slots=True, kw_only=True)
class Run:
    """Everything that changes while training."""

    config: Config
    weights: Tensors
    optimizer: Adam
    batches: Batches
    step: int = 0

    @classmethod
    def start(cls, config: Config, data: Data) -> Run:
        rng = np.random.default_rng(config.seed)
        sizes = [data.train[0].shape[1], *[config.hidden] * config.layers, data.train[1].shape[1]]
        weights = initial_weights(sizes, rng)
        batches = Batches(len(data.train[0]), config.batch, rng)
        return cls(config=config, weights=weights, optimizer=Adam(weights), batches=batches)

    @classmethod
    def resume(cls, config: Config, data: Data, folder: Path) -> Run:
        """Continue from a checkpoint exactly: weights, moments, schedule and shuffling."""
        state = json.loads((folder / "state.json").read_bytes())
        run = cls.start(config, data)
        stored = load_file(folder / "model.safetensors")
        run.weights = {name: stored[name] for name in run.weights}
        run.optimizer = Adam(run.weights, load_file(folder / "optimizer.safetensors"))
        run.batches.restore(state["rng"])
        run.step = int(state["step"])
        return run

    def advance(self, data: Data) -> float:
        rows = next(self.batches)
        seen = data.train[0][rows]
        seen += np.float32(self.config.noise) * self.batches.rng.standard_normal(seen.shape, dtype=np.float32)
        loss, gradients = loss_and_gradients(self.weights, seen, data.train[1][rows])
        rate = self.config.rate(self.step)
        self.optimizer.update(self.weights, gradients, step=self.step, rate=rate, decay=self.config.weight_decay)
        self.step += 1
        return loss

    def save(self, folder: Path, data: Data, metrics: Mapping[str, float]) -> None:
        """Write beside the final place and rename, so that a kill leaves no half checkpoint."""
        target = folder / f"step-{self.step:06d}"
        part = target.with_name(f"{target.name}.tmp")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_file(self.weights | data.scales, part / "model.safetensors")
        save_file(self.optimizer.moments, part / "optimizer.safetensors")
        state = {
            "step": self.step,
            "scheduler": {"kind": "warmup-cosine", "last_rate": self.config.rate(self.step)},
            "rng": self.batches.state(),
            "config": asdict(self.config),
            "metrics": dict(metrics),
        }
        (part / "state.json").write_text(json.dumps(state))
        for path in part.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)


def train(run: Run, data: Data, output: Path) -> list[dict[str, float]]:
    """Train to the last step; returns what was reported."""
    config, history = run.config, []
    started, first, smooth = time.perf_counter(), run.step, float("nan")
    while run.step < config.steps:
        loss = run.advance(data)
        smooth = loss if math.isnan(smooth) else 0.98 * smooth + 0.02 * loss
        saves = run.step % config.checkpoint_every == 0 or run.step == config.steps
        if saves or run.step % config.report_every == 0:
            held_out = loss_of(run.weights, data.held_out)
            metrics = {"loss": smooth, "held_out_loss": held_out, "learning_rate": config.rate(run.step)}
            history.append({"step": float(run.step)} | metrics)
            speed = (run.step - first) / (time.perf_counter() - started)
            print(
                f"step {run.step:>6}/{config.steps}  loss {smooth:.5f}  held-out {held_out:.5f}"
                f"  rate {config.rate(run.step):.2e}  {speed:.0f} steps/s",
                flush=True,
            )
            if saves:
                run.save(output / "checkpoints", data, metrics)
    return history


def evaluate(run: Run, data: Data) -> dict[str, float]:
    """Held-out error against always predicting the mean action."""
    prediction = forward(run.weights, data.held_out[0])[-1]
    truth = data.held_out[1]
    error = float(np.mean((prediction - truth) ** 2))
    baseline = float(np.mean((truth - data.train[1].mean(0)) ** 2))
    return {
        "held_out_loss": error,
        "mean_action_loss": baseline,
        "explained_variance": 1 - error / baseline if baseline else 0.0,
        "held_out_frames": float(len(truth)),
    }


def read_config() -> tuple[Config, Path | None]:
    """Hyper-parameters: command line first, then the job's parameters, then the defaults."""
    given = sdk.current_job().parameters
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in asdict(Config()).items():
        kind = type(default)
        value = kind(given[name]) if name in given else default
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value)
    parser.add_argument("--output", type=Path, default=None, help="outside of a job: where to write")
    values = vars(parser.parse_args())
    output = values.pop("output")
    return Config(**values), output


def main() -> None:
    config, folder = read_config()
    job = sdk.current_job()
    output = folder or job.output
    output.mkdir(parents=True, exist_ok=True)
    dataset = sdk.open(config.dataset)
    data = load(dataset, config)
    print(f"{dataset!r}: {len(data.train[0])} frames to learn from, {len(data.held_out[0])} held out", flush=True)
    if job.resume_from is not None:
        run = Run.resume(config, data, job.resume_from)
        print(f"attempt {job.attempt}: resumed from {job.resume_from.name} at step {run.step}", flush=True)
    else:
        run = Run.start(config, data)
    history = train(run, data, output)
    result = evaluate(run, data)
    (output / "metrics.json").write_text(json.dumps({"config": asdict(config), "history": history}, indent=2))
    (output / "eval.json").write_text(json.dumps(result, indent=2))
    print(f"done: explained variance on held-out episodes {result['explained_variance']:.3f}", flush=True)


if __name__ == "__main__":
    main()

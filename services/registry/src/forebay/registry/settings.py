"""Settings of the registry: the shared ones, and where it may look for checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from forebay.contracts.v1.datasets import EPISODE_LISTS
from forebay.registry.workers.keep_model import ModelStore
from forebay.runtime.settings import ServiceSettings


class RegistrySettings(ServiceSettings):
    """Environment names are `FOREBAY_<FIELD>` in capitals."""

    checkpoint_roots: str = ""
    """More folders that checkpoints may lie in, separated by ':'; `{project}` and `{job}` are filled in.
    A job's own folder and its imports under the home are always allowed, nothing else is."""

    pool: Path | None = None
    """Folder of the data pool; default `<home>/pool`. The episode lists of versions are kept there."""
    pool_kind: Literal["juicefs", "folder"] = "folder"
    """What the pool is: a JuiceFS mount, or a plain folder."""
    model_store: Path | None = None
    """Folder where the files of registered models are kept; default `models` in the data pool."""

    def models(self) -> ModelStore:
        """Where files of models go, and what must be mounted for that."""
        pool = (self.pool or self.home / "pool").absolute()
        folder = pool / "models" if self.model_store is None else self.model_store.absolute()
        mount = pool if self.pool_kind == "juicefs" and folder.is_relative_to(pool) else None
        return ModelStore(folder=folder, mount=mount, floor=self.disk_floor_bytes)

    def episode_lists(self) -> Path:
        """Where ingest keeps the episode lists of versions."""
        return (self.pool or self.home / "pool").absolute() / EPISODE_LISTS

    def roots(self) -> tuple[str, ...]:
        own = str(self.home.absolute() / "jobs" / "{project}" / "{job}")
        imported = str(self.home.absolute() / "imports" / "{project}" / "{job}")
        return (own, imported, *(root for root in self.checkpoint_roots.split(os.pathsep) if root))

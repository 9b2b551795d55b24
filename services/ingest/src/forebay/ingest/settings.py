"""Ingest's settings, read from FOREBAY_* at start."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from forebay.runtime.settings import ServiceSettings


class IngestSettings(ServiceSettings):
    """What ingest needs beside what every service needs."""

    pool: Path | None = None
    """Folder of the data pool; default `<home>/pool`. Uploads are read and versions written here and nowhere else."""
    pool_kind: Literal["juicefs", "folder"] = "folder"
    """What the pool is: a JuiceFS mount, or a plain folder."""

    @property
    def pool_folder(self) -> Path:
        return (self.pool or self.home / "pool").absolute()

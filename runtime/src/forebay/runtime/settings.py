"""Settings from the environment and an optional file; all problems are listed at once.

The only module of the runtime that reads the environment. Services subclass
`ServiceSettings` and pass narrow values down.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from forebay.runtime.disk_room import DISK_FLOOR_BYTES
from forebay.runtime.errors import SettingsError
from forebay.runtime.sequences import parse_ranges

PREFIX = "FOREBAY_"


class ServiceSettings(BaseModel):
    """What every service needs to know about the place it runs in."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path = Path(".forebay")
    """Folder of everything that this installation keeps."""
    nats_url: str = "nats://127.0.0.1:4222"
    nkey_file: Path | None = None
    """Seed of this part's identity; None only for a server without accounts (tests)."""
    store: Path | None = None
    """SQLite file; default `<home>/services/<name>/state.sqlite`."""
    store_url: str | None = None
    """MongoDB instead of the SQLite file, e.g. mongodb://user:password@host/forebay?replicaSet=rs0."""
    accepted_loss: str = ""
    """Sequences of messages that the log lost and that somebody has accepted as lost, e.g. 4, 123-130."""
    health_port: int = Field(default=0, ge=0, le=65535)
    """HTTP port of /livez, /readyz, /healthz and /metrics; 0 turns it off."""
    health_address: str = "127.0.0.1"
    """Where it listens; 0.0.0.0 in a pod, whose kubelet and Prometheus ask from outside."""
    pool_disk: Path | None = None
    """A folder on the disk of the data pool, which is watched; None: it lies elsewhere."""
    disk_floor_bytes: int = Field(default=DISK_FLOOR_BYTES, ge=0)
    """Health turns red when less than this is free on the disk of the store or the pool."""
    umask: str = Field(default="077", pattern=r"^0?[0-7]{3}$")
    """Which permissions new files do not get: 077, only this user may read them; 027, its group, too.
    Where pods of other users read what a service writes into a shared pool, 022."""
    store_cache_bytes: int = Field(default=32 << 20, ge=1 << 20)
    """Pages of the SQLite file that stay in memory: enough for the inner ones of a store of a million documents."""
    otlp_endpoint: str | None = None
    """OTLP/HTTP collector, e.g. http://127.0.0.1:4318; None: no traces are sent."""
    log_level: str = "INFO"
    cached_documents: int | None = Field(default=None, ge=1)
    """Documents that stay in memory between two events; None: as many as the service needs to be fast."""
    work_silent_s: float = Field(default=300.0, gt=0)
    """Seconds that long work may go without a sign of progress before it is abandoned and tried again."""

    @field_validator("store_url")
    @classmethod
    def _known_store(cls, url: str | None) -> str | None:
        if url and not url.startswith(("mongodb://", "mongodb+srv://")):
            msg = "a store is a SQLite file (FOREBAY_STORE) or mongodb://host/database"
            raise ValueError(msg)
        return url

    @field_validator("accepted_loss")
    @classmethod
    def _sequences(cls, text: str) -> str:
        try:
            parse_ranges(text)
        except ValueError:
            msg = "expected sequences of messages, for example 4, 123-130"
            raise ValueError(msg) from None
        return text

    def store_path(self, service: str) -> Path:
        return self.store or self.home / "services" / service / "state.sqlite"


S = TypeVar("S", bound=BaseModel)


def environment() -> Mapping[str, str]:
    """The process environment; everything else gets it passed."""
    return os.environ  # noqa: TID251 the one place


def load_settings(kind: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Build settings from `FOREBAY_<FIELD>` and, below it, the TOML file that FOREBAY_SETTINGS names.

    Raises `SettingsError` with every problem.
    """
    environ = environment() if environ is None else environ
    values: dict[str, Any] = {}
    if path := environ.get(f"{PREFIX}SETTINGS"):
        try:
            values.update(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            msg = f"settings file {path}: {error}"
            raise SettingsError(msg) from error
    values.update(
        {name: environ[key] for name in kind.model_fields if (key := PREFIX + name.upper()) in environ and environ[key]}
    )
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{PREFIX}{'.'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        msg = f"{error.error_count()} settings do not fit: {problems}"
        raise SettingsError(msg) from error

"""Settings of the cache; the only module of it that reads the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from forebay.cache.domain.documents import LOCAL_NODE
from forebay.contracts.identifiers import slug
from forebay.runtime.settings import ServiceSettings, load_settings


class CacheSettings(ServiceSettings):
    """FOREBAY_POOL… is set by `forebay up`; the rest has defaults that fit one machine."""

    pool: Path | None = None
    """Folder that jobs read from; default `<home>/pool`."""
    pool_kind: Literal["juicefs", "folder"] = "folder"
    """What the pool is: a JuiceFS mount, whose cache can be looked into, or a plain folder."""
    pool_log: Path | None = None
    """What the mount writes about itself; tells why its object storage gives no bytes."""
    cache_budget_bytes: int | None = Field(default=None, gt=0)
    """Cache bytes that all plans may hold together; unset: what the pool itself keeps at most."""
    cache_parallel: int = Field(default=4, ge=1, le=64)
    """Files that are warmed at once within one plan."""
    cache_stall_s: float = Field(default=300.0, gt=0)
    """How long a warm-up may go without a byte before it is interrupted and tried again."""
    node: str = LOCAL_NODE
    """Name of this machine where several have caches; readiness is kept for each."""
    kubelet_evicts_below: float | None = Field(default=None, gt=0, lt=1)
    """Share of free disk below which the kubelet of this machine evicts pods (imagefs.available, 0.15 by default)."""

    @field_validator("node")
    @classmethod
    def _is_id(cls, node: str) -> str:
        return slug(node)

    @property
    def pool_folder(self) -> Path:
        return (self.pool or self.home / "pool").absolute()

    @property
    def plans_folder(self) -> Path:
        """Where the plans lie that events refer to."""
        return (self.home / "services" / "cache" / "plans").absolute()


class AskSettings(BaseModel):
    """What `forebay plan NAME@TAG` needs to ask ingest."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path = Path(".forebay")
    nats_url: str | None = None
    nkey_file: Path | None = None
    project: str | None = None


def load() -> CacheSettings:
    """Settings from the environment; raises with every problem listed."""
    return load_settings(CacheSettings)


def load_ask() -> AskSettings:
    return load_settings(AskSettings)

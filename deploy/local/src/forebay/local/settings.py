"""What this machine decides about its own installation; read from FOREBAY_* once, then passed down."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from forebay.runtime.disk_room import DISK_FLOOR_BYTES
from forebay.runtime.settings import load_settings

GIB = 1 << 30
ALWAYS = "always"


class LocalSettings(BaseModel):
    """Settings of `forebay up` and its relatives."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    home: Path = Path(".forebay")
    """Folder of everything that this installation keeps."""
    log_max_bytes: int = Field(default=4 * GIB, gt=1 << 20)
    """Room for the event log. When it is full, publishers keep their events and say so."""
    log_file_bytes: int = Field(default=16 << 20, gt=1 << 12)
    """A process's log file is set aside at this size; one older file is kept."""
    bus_pods: bool = False
    """Pods of a cluster connect with their own tokens, about which the server asks the bridge (ADR 0007).
    The server then takes in new projects only when it starts."""
    pool_cache_bytes: int = Field(default=8 * GIB, gt=1 << 20)
    """Room for the JuiceFS cache; never more than half of what is free on the disk."""
    sync_interval: str = ALWAYS
    """`always`: an event is on the disk (fsync) before it is acknowledged, so a power cut loses nothing.
    An interval such as `2m`, NATS's own default, is faster, and a power cut loses up to that much:
    only for a bus of three servers, where others hold what one has lost."""
    disk_floor_bytes: int = Field(default=DISK_FLOOR_BYTES, ge=0)
    """New uploads and jobs are refused when less than this is free on the disk of the home, the pool or the bus;
    on a disk smaller than ten times this, when less than a tenth is free."""

    umask: str = Field(default="077", pattern=r"^0?[0-7]{3}$")
    """Which permissions files do not get: 077, only this user may read them; 027, the user's group, too."""

    @property
    def umask_bits(self) -> int:
        return int(self.umask, 8)

    @field_validator("sync_interval")
    @classmethod
    def _known_interval(cls, value: str) -> str:
        if value != ALWAYS and not re.fullmatch(r"[1-9][0-9]*(ms|s|m|h)", value):
            msg = "'always', or a time such as 500ms, 10s or 2m"
            raise ValueError(msg)
        return value


def load() -> LocalSettings:
    """Raises `SettingsError` that lists every problem."""
    settings = load_settings(LocalSettings)
    return settings.model_copy(update={"home": settings.home.expanduser().absolute()})

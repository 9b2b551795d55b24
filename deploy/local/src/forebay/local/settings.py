"""What this machine decides about its own installation; read from FOREBAY_* once, then passed down."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from forebay.runtime.settings import load_settings

GIB = 1 << 30


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
    sync_interval: str = "1s"
    """How long acknowledged events may wait for the disk. A killed process loses nothing;
    a power cut loses at most this. NATS's own default is 2 minutes."""


def load() -> LocalSettings:
    """Raises `SettingsError` that lists every problem."""
    settings = load_settings(LocalSettings)
    return settings.model_copy(update={"home": settings.home.expanduser().absolute()})

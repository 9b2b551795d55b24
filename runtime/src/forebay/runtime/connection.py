"""Connecting to the bus as one identity: nkey or a pod's token, own inbox, endless reconnects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.contracts.parts import Source
from forebay.contracts.permissions import inbox_prefix
from forebay.runtime.errors import NotAdmitted, Unreachable
from forebay.runtime.headers import speed_up

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodToken:
    """How a pod of one job shows who it is: with a token that its cluster keeps new in this file."""

    file: Path
    job: str


Key = Path | PodToken | None
"""An nkey file, a pod's token, or nothing where the bus asks for nothing."""


def connect_options(source: Source, key: Key) -> dict[str, Any]:
    """Options for nats-py (and FastStream's broker, which passes them on)."""
    job = key.job if isinstance(key, PodToken) else None
    options: dict[str, Any] = {
        "name": f"{source}/{job}" if job else str(source),
        "inbox_prefix": inbox_prefix(source, job).encode(),
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.5,
        "connect_timeout": 3,
        "ping_interval": 20,
        "max_outstanding_pings": 2,
    }
    if isinstance(key, PodToken):
        options["token"] = _newest(key.file)
    elif key is not None:
        options["nkeys_seed_str"] = read_seed(key)
    return options


def _newest(path: Path) -> Callable[[], str]:
    """Read at every connect: the kubelet exchanges the file long before its token ends."""
    return lambda: read_seed(path)


def read_seed(path: Path) -> str:
    """The seed or token in a key file. Raises `Unreachable` that names the file, never what is in it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the key file {path} cannot be read ({type(error).__name__})"
        raise Unreachable(msg, "make the keys with: forebay bus init") from error


async def connect(url: str, source: Source, key: Key, *, retry: bool = False) -> NatsClient:
    """Connect once; raises `Unreachable` when nobody answers, `NotAdmitted` when the key is not known.

    `retry` keeps trying for ever, for processes that outlive the server.
    """
    import nats  # noqa: PLC0415 the CLI's help must not pay for it
    from nats.errors import Error as NatsError  # noqa: PLC0415

    connected = False

    async def on_error(error: Exception) -> None:
        _log.log(logging.WARNING if connected else logging.DEBUG, "bus: %s", error)

    options = connect_options(source, key) | {"error_cb": on_error}
    endless = {key: options[key] for key in ("max_reconnect_attempts", "reconnect_time_wait")}
    options["allow_reconnect"] = retry
    if not retry:  # nats-py's endless reconnects count for the first connection too
        options |= {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    try:
        client = await nats.connect(url, **options)
    except (NatsError, OSError, TimeoutError) as error:
        if "authorization" in str(error).lower():
            msg, advice = f"the bus at {url} does not know the key of {source}", "make keys with: forebay bus init"
            if isinstance(key, PodToken):
                msg = f"the bus at {url} does not admit this pod as one of job {key.job}"
                advice = "the scheduler-bridge admits pods while it runs, and its log says why not"
            raise NotAdmitted(msg, advice) from error
        msg = f"no bus answers at {url}"
        raise Unreachable(msg, "start it with: forebay up") from error
    connected = True
    speed_up(client)
    if not retry:
        client.options.update(endless, allow_reconnect=True)
    return client

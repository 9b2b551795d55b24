"""Connecting to the bus as one identity: nkey, own inbox, endless reconnects."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.contracts.parts import Source
from forebay.runtime.errors import Unreachable
from forebay.runtime.headers import speed_up

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient

_log = logging.getLogger(__name__)


def inbox_prefix(source: Source) -> str:
    """The inbox that only this identity may read: replies to others stay unseen."""
    return f"_INBOX_{source.part}" + (f"_{source.project}" if source.project else "")


def connect_options(source: Source, nkey_file: Path | None) -> dict[str, Any]:
    """Options for nats-py (and FastStream's broker, which passes them on)."""
    options: dict[str, Any] = {
        "name": str(source),
        "inbox_prefix": inbox_prefix(source).encode(),
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.5,
        "connect_timeout": 3,
        "ping_interval": 20,
        "max_outstanding_pings": 2,
    }
    if nkey_file is not None:
        options["nkeys_seed_str"] = read_seed(nkey_file)
    return options


def read_seed(path: Path) -> str:
    """The seed in an nkey file. Raises `Unreachable` that names the file, never the seed."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the key file {path} cannot be read ({type(error).__name__})"
        raise Unreachable(msg, "make the keys with: forebay bus init") from error


async def connect(url: str, source: Source, nkey_file: Path | None, *, retry: bool = False) -> NatsClient:
    """Connect once; raises `Unreachable` when nobody answers or the key is not known.

    `retry` keeps trying for ever, for processes that outlive the server.
    """
    import nats  # noqa: PLC0415 the CLI's help must not pay for it
    from nats.errors import Error as NatsError  # noqa: PLC0415

    connected = False

    async def on_error(error: Exception) -> None:
        _log.log(logging.WARNING if connected else logging.DEBUG, "bus: %s", error)

    options = connect_options(source, nkey_file) | {"error_cb": on_error}
    endless = {key: options[key] for key in ("max_reconnect_attempts", "reconnect_time_wait")}
    options["allow_reconnect"] = retry
    if not retry:  # nats-py's endless reconnects count for the first connection too
        options |= {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    try:
        client = await nats.connect(url, **options)
    except (NatsError, OSError, TimeoutError) as error:
        if "authorization" in str(error).lower():
            msg = f"the bus at {url} does not know the key of {source}"
            raise Unreachable(msg, "make keys and configuration with: forebay bus init") from error
        msg = f"no bus answers at {url}"
        raise Unreachable(msg, "start it with: forebay up") from error
    connected = True
    speed_up(client)
    if not retry:
        client.options.update(endless, allow_reconnect=True)
    return client

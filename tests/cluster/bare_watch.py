"""A bare list and watch beside the bridge: what the API itself says of some kinds, and when it said so.

In a test as `follow`, or as a process of its own whose processor time and memory can be
compared: `python -m tests.cluster.bare_watch KUBECONFIG NAMESPACE FILE` writes a line
`{at, kind, uid, name, version}` per change until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientError
from forebay.testcluster.api import Api, path_of

Json = dict[str, Any]
Tell = Callable[[str, Json], None]
"""Called with `ADDED`, `MODIFIED` or `DELETED`, and the object."""
KINDS = ("Job", "Workload", "Pod")
ALL_KINDS = (*KINDS, "Event", "PersistentVolumeClaim", "LocalQueue", "Node", "ClusterQueue")
"""What the bridge watches."""
_OF_THE_CLUSTER = frozenset({"Node", "ClusterQueue"})


async def follow(api: Api, kind: str, namespace: str | None, tell: Tell) -> None:
    """Tell of everything that there is of a kind, then of every change; never ends."""
    listed = await api.json("GET", path_of(kind, namespace))
    version = str(listed["metadata"]["resourceVersion"])
    for item in listed["items"]:
        tell("ADDED", {"kind": kind, **item})
    while True:
        with contextlib.suppress(ClientError, OSError):  # cut off: on from where it was
            async for change in api.watch(kind, namespace, version):
                item = change["object"]
                if change["type"] == "ERROR":
                    msg = f"the watch of {kind} cannot go on from {version}: {item.get('message')}"
                    raise RuntimeError(msg)
                version = str(item["metadata"]["resourceVersion"])
                if change["type"] != "BOOKMARK":
                    tell(change["type"], {"kind": kind, **item})


async def _write(kubeconfig: Path, namespace: str, file: Path) -> None:
    with file.open("w", encoding="utf-8", buffering=1) as lines:

        def tell(_: str, item: Json) -> None:
            metadata = item["metadata"]
            seen = {"at": time.time(), "kind": item["kind"], "uid": metadata["uid"], "name": metadata["name"]}
            lines.write(json.dumps(seen | {"version": metadata["resourceVersion"]}) + "\n")

        async with Api.open(kubeconfig) as api, asyncio.TaskGroup() as group:
            for kind in ALL_KINDS:
                group.create_task(follow(api, kind, None if kind in _OF_THE_CLUSTER else namespace, tell))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))

"""Who holds a store: a record that lets a successor on the same machine see that the holder died."""

from __future__ import annotations

import json
import os

import psutil


def owner_record(owner: str) -> str:
    """The record of this process under the name `owner`."""
    me = psutil.Process()
    return json.dumps({"owner": owner, "host": os.uname().nodename, "pid": me.pid, "start": me.create_time()})


def may_live(holder: str) -> bool:
    """False only when the holder's process ran on this machine and is gone."""
    try:
        record = json.loads(holder)
        if record["host"] != os.uname().nodename:
            return True
        return bool(abs(psutil.Process(record["pid"]).create_time() - record["start"]) < 1)
    except psutil.NoSuchProcess:
        return False
    except (ValueError, KeyError, TypeError):
        return True

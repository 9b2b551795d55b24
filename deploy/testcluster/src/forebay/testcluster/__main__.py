"""`python -m forebay.testcluster up | down | status | build | why-not`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.terminal import print_line
from forebay.testcluster import build, launch, machine, settings
from forebay.testcluster.errors import ClusterError
from forebay.testcluster.work_folder import NODE_GRACE_S, WorkFolder


def _say(text: str) -> None:
    print_line(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m forebay.testcluster",
        description="A real one-node Kubernetes with Kueue on this machine, for tests.",
        epilog="example: python -m forebay.testcluster up && kubectl --kubeconfig .forebay/testcluster/kubeconfig get pods -A",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in {
        "build": "build the servers, KWOK too (once per machine, about 12 minutes on two cores)",
        "up": "start the cluster and wait until Kueue answers",
        "down": "end it and take away everything it made; fine when nothing runs",
        "status": "say what runs (exit code 1 when nothing does)",
        "why-not": "say why it cannot run here (exit code 1), or nothing",
    }.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in {"up", "down", "status"}:
            command.add_argument("--work", type=Path, help="work folder (default .forebay/testcluster)")
        if name == "up":
            command.add_argument("--gpus", type=_count, default=launch.DEFAULT_GPUS, help="fake GPUs of the node")
            patience = f"seconds of silence before a node is taken for lost (default {NODE_GRACE_S})"
            command.add_argument("--node-grace", type=_patience, default=NODE_GRACE_S, metavar="SECONDS", help=patience)
        if name == "status":
            command.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        msg = f"{text!r} is not a number of GPUs: 0 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _patience(text: str) -> int:
    if not text.isdecimal() or int(text) < NODE_GRACE_S:
        msg = f"{text!r} is not a number of seconds: {NODE_GRACE_S} or more, else a living node is taken for lost"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _folder(given: Path | None) -> WorkFolder:
    return WorkFolder((given or settings.load().testcluster_work).expanduser().absolute())


def _run(words: argparse.Namespace) -> int:
    match words.command:
        case "build":
            build.build(_say, *build.OPTIONAL)
        case "why-not":
            found = machine.reasons()
            for reason in found:
                _say(reason)
            return int(bool(found))
        case "up":
            folder = _folder(words.work)
            _say(f"starting the test cluster in {folder.root}")
            record = launch.up(folder, gpus=words.gpus, node_grace_s=words.node_grace, say=_say)
            _say(f"up in {record.took_s} s; KUBECONFIG={folder.kubeconfig}")
        case "down":
            folder = _folder(words.work)
            _say(f"ended: {launch.down(folder)}")
            if left := launch.remains(folder):
                msg = f"still there: {', '.join(left)}"
                raise ClusterError(msg, "end what holds them, then run `down` again")
        case "status":
            return _status(_folder(words.work), as_json=words.json)
    return 0


def _status(folder: WorkFolder, *, as_json: bool) -> int:
    record = launch.running(folder)
    found = {
        "running": record is not None,
        "work": str(folder.root),
        "kubeconfig": str(folder.kubeconfig) if record is not None else None,
        "servers": launch.server_pids(folder) if record is not None else {},
    }
    if as_json:
        _say(json.dumps(found))
    elif record is None:
        _say(f"no cluster runs in {folder.root}")
    else:
        _say(f"running; KUBECONFIG={folder.kubeconfig}")
        for name, pid in launch.server_pids(folder).items():
            _say(f"  {name:20} {f'pid {pid}' if pid else 'does not run'}")
    return int(record is None)


def _tell(error: Refused | Unreachable) -> None:
    print_line(error.message, stderr=True)
    if error.next_action:
        print_line(error.next_action, stderr=True)


def main() -> int:
    try:
        return _run(_parser().parse_args())
    except Refused as refused:
        _tell(refused)
        return 1
    except Unreachable as failed:
        _tell(failed)
        return 3


if __name__ == "__main__":
    sys.exit(main())

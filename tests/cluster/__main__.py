"""`make test-cluster`: build, start, test, stop; or say why not and what else to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from forebay.runtime.errors import Refused, Unreachable
from forebay.testcluster import build, machine, settings
from forebay.testcluster.errors import CannotRun


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Prepares what takes long, so that no test's time runs out meanwhile, then runs the tests."""
    if foreign := settings.foreign_kubeconfig():
        _say(f"testing on the cluster that KUBECONFIG={foreign} names; tests of the node itself need our own cluster")
    else:
        try:
            if reasons := machine.reasons():
                raise CannotRun(reasons)
            machine.ready(_say)
            build.build(_say, *build.OPTIONAL)
        except (Refused, Unreachable) as failure:
            _say(f"{failure.message}\n{failure.next_action}")
            return 1
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""kubectl with one kubeconfig and no other: what the start of a cluster says to its API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.testcluster import build
from forebay.testcluster.errors import ClusterError
from forebay.testcluster.settings import outer_environment


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Commands to one cluster."""

    kubeconfig: Path
    cache: Path

    def run(self, *words: str, stdin: str | None = None, within: float = 60) -> str:
        """What it printed. Raises `ClusterError` with what it complained about."""
        done = self._run(*words, stdin=stdin, within=within)
        if done.returncode:
            msg = f"kubectl {' '.join(words)}: {(done.stderr or done.stdout).strip()[-1500:]}"
            raise ClusterError(msg)
        return done.stdout

    def answers(self, *words: str, within: float = 5) -> str | None:
        """What it printed, or None when the answer was no (or none)."""
        try:
            done = self._run(*words, stdin=None, within=within)
        except subprocess.TimeoutExpired:
            return None
        return None if done.returncode else done.stdout

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Make the objects, or make them so."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        words = ("apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-")
        self.run(*words, stdin=json.dumps(listed))

    def _run(self, *words: str, stdin: str | None, within: float) -> subprocess.CompletedProcess[str]:
        fixed = [str(build.kubectl()), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}"]
        return subprocess.run(  # noqa: S603 our own program and words
            [*fixed, *words],
            input=stdin,
            env=dict(outer_environment()),
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )

"""What an agent in a pod imports: neither Lance nor Arrow, which its small image has not got."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("lance", "pyarrow", "numpy", "motor", "pymongo")


@pytest.mark.parametrize("module", ["forebay.sdk.pod", "forebay.sdk.agent", "forebay.cli.main"])
def test_the_agent_imports_nothing_that_only_readers_need(module: str) -> None:
    """Started in a fresh interpreter, none of the heavy packages is loaded."""
    program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

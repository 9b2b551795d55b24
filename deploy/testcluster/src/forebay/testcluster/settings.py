"""What this machine decides about the test cluster; read from the environment once, then passed down."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from forebay.runtime.settings import environment, load_settings

LONGEST_PATH = 66
"""Sockets below the work folder must fit in the 107 bytes that a Unix socket's name may have."""


class TestClusterSettings(BaseModel):
    """Settings of the test cluster."""

    __test__ = False  # not a test, whatever pytest makes of the name
    model_config = ConfigDict(frozen=True, extra="ignore")

    testcluster_work: Path = Path(".forebay/testcluster")
    """FOREBAY_TESTCLUSTER_WORK: the one folder of everything that a started cluster keeps."""
    testcluster_image: str = "busybox:1.37"
    """FOREBAY_TESTCLUSTER_IMAGE: an image with a shell that a cluster named by KUBECONFIG can pull."""


def load() -> TestClusterSettings:
    """Raises `SettingsError` that lists every problem."""
    settings = load_settings(TestClusterSettings)
    work = settings.testcluster_work.expanduser().absolute()
    if "testcluster_work" not in settings.model_fields_set and len(str(work)) > LONGEST_PATH:
        # A checkout deep down must not keep anybody from testing.
        work = Path(tempfile.gettempdir()) / f"forebay-testcluster-{hashlib.sha256(str(work).encode()).hexdigest()[:8]}"
    return settings.model_copy(update={"testcluster_work": work})


def cache_root() -> Path:
    """Where built programs are kept, for every checkout of this user."""
    return Path(environment().get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay"


def outer_environment() -> Mapping[str, str]:
    """What child processes get: all but names that would lead a program to another cluster."""
    return {name: value for name, value in environment().items() if name not in {"KUBECONFIG", "KUBERNETES_MASTER"}}


def foreign_kubeconfig() -> Path | None:
    """The cluster that a person names with KUBECONFIG, when it is one file."""
    named = environment().get("KUBECONFIG", "")
    return Path(named).expanduser() if named else None

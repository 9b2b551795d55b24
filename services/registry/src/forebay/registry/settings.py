"""Settings of the registry: the shared ones, and where it may look for checkpoints."""

from __future__ import annotations

import os

from forebay.runtime.settings import ServiceSettings


class RegistrySettings(ServiceSettings):
    """Environment names are `FOREBAY_<FIELD>` in capitals."""

    checkpoint_roots: str = ""
    """More folders that checkpoints may lie in, separated by ':'; `{project}` and `{job}` are filled in.
    A job's own folder and its imports under the home are always allowed, nothing else is."""

    def roots(self) -> tuple[str, ...]:
        own = str(self.home.absolute() / "jobs" / "{project}" / "{job}")
        imported = str(self.home.absolute() / "imports" / "{project}" / "{job}")
        return (own, imported, *(root for root in self.checkpoint_roots.split(os.pathsep) if root))

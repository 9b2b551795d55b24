"""How much /dev/shm a data loader needs: its workers hand whole batches over through it."""

from __future__ import annotations

from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain.mounts import SHM, MountType, parse_mounts

DEFAULT_SHM_BYTES = 64 << 20
"""What a container gets without a memory volume there."""


def shm_needed(spec: JobSpec) -> int:
    """Bytes in flight at most: workers · prefetch · batch · sample; 0 without workers or when nobody says."""
    loader = spec.loader
    if loader is None:
        return 0
    return loader.workers * loader.prefetch * loader.batch_size * loader.sample_bytes


def has_shm(spec: JobSpec) -> bool:
    """The job asks for a /dev/shm of its own, one way or the other."""
    mounts = parse_mounts(spec.mounts or "").mounts
    return spec.resources.shm_bytes is not None or any(
        item.type is MountType.MEMORY and item.directory == SHM for item in mounts
    )

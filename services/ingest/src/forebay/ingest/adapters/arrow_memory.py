"""Where pyarrow gets its memory from."""

from __future__ import annotations

import pyarrow as pa


def use_system_memory() -> None:
    """Take it from malloc: pyarrow's own pool keeps megabytes for each thread that ever used it."""
    pa.set_memory_pool(pa.system_memory_pool())

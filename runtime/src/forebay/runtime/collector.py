"""How often Python looks for garbage in circles: seldom, in a process whose memory is documents and answers.

Neither holds circles, but each collection walks them all: that was most of the time of the
longest answers. What exceptions and tasks leave in circles is still found, later.
Called by `main` of every service.
"""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 50_000, 20, 100


def collect_seldom() -> None:
    """Set what is there now (code, above all) aside for ever, and collect the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

"""How often Python looks for garbage in circles: seldom, in a process whose memory is documents and answers.

Neither holds circles, but each collection of the old walks them all: that was most of the time of the
longest answers. What exceptions and tasks leave in circles is young when it is left (nats-py does so
with every pull that ends empty, twice a second), so the young are looked through more often.
Called by `main` of every service.
"""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 10_000, 100, 100


def collect_seldom() -> None:
    """Set what is there now (code, above all) aside for ever, and collect the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

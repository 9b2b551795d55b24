"""Names that people chose, taken out of a text before words in it are believed.

A Secret may be called `oom-killed-test` and a namespace `image-pull`; what a message says about them is not what they are called.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r'"[a-z0-9](?:[a-z0-9.\-]{0,251}[a-z0-9])?"')
"""As Kubernetes allows names, and as its components quote them."""
NAMELESS = '"_"'


def without_names(text: str) -> str:
    """The text with every quoted name as `_`."""
    return _QUOTED.sub(NAMELESS, text) if '"' in text else text

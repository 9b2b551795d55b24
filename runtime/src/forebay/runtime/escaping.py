r"""Text from outside made safe to show: one function for each format that Forebay writes.

A name, a message or a path may hold anything: escape sequences that move the cursor,
line breaks that forge a line, direction controls that turn a sentence round, characters
that nobody sees. Each function here leaves ordinary text as it is and writes the rest as
a visible escape such as `\x1b` or `\u202e`. Whoever writes a format calls its function at
the very end, so that what is stored and what is compared stays as it came.
"""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any

# Not covered by `str.isprintable`, and drawn as nothing: joiners, fillers, variation selectors of the last plane.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\U000e0100-\U000e01ef]")
_MERMAID_PLAIN = re.compile(r"[^\w @\-.,:/+=]", re.ASCII)
_NOTE = 30
"""Room for saying how much was cut."""
_UNDECODED = range(0xDC80, 0xDD00)
"""How Python writes bytes of a path that are not UTF-8."""


def visible(text: str) -> str:
    """Text on one line of a terminal or a plain text file: what cannot be seen is written as an escape."""
    if _harmless(text):
        return text
    return "".join(letter if _shown(letter) else letter.encode("unicode_escape").decode() for letter in text)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters; what is cut is counted where there is room to say so."""
    if len(text) <= limit:
        return text
    kept = limit - _NOTE
    return f"{text[:kept]}… ({len(text) - kept:,} more characters)" if kept >= _NOTE else text[: limit - 1] + "…"


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""JSON that every parser reads back equal, and that can be printed: letters stay, the rest is `\uXXXX`.

    JSON has no NaN and no infinity; they become text.
    """
    try:
        text = json.dumps(value, default=str, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(_finite(value), default=str, ensure_ascii=False, allow_nan=False, indent=indent)
    if _harmless(text):
        return text
    return "".join(letter if letter == "\n" or _shown(letter) else json.dumps(letter)[1:-1] for letter in text)


def xml_text(text: str) -> str:
    """Text or the value of a quoted attribute in XML, SVG and HTML."""
    return html.escape(visible(text), quote=True)


def mermaid_text(text: str) -> str:
    """The inside of a quoted Mermaid label: what its grammar could read becomes `#NN;`."""
    return _MERMAID_PLAIN.sub(lambda found: _mermaid_letter(found[0]), visible(text))


def shell_word(text: str) -> str:
    """One word of a command that a person copies into a shell."""
    if _harmless(text):
        return shlex.quote(text)
    quoted = "".join(
        f"\\{letter}" if letter in "\\'" else letter if _shown(letter) else _shell_letter(letter) for letter in text
    )
    return f"$'{quoted}'"


def _harmless(text: str) -> bool:
    return text.isprintable() and _INVISIBLE.search(text) is None


def _shown(letter: str) -> bool:
    """A letter that leaves a mark where it stands; wide and narrow spaces count."""
    return _harmless(letter) or unicodedata.category(letter) == "Zs"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _mermaid_letter(letter: str) -> str:
    return f"#{ord(letter)};" if letter.isascii() else letter


def _shell_letter(letter: str) -> str:
    r"""As `$'…'` reads it; `\xNN` is a byte there and not a letter."""
    code = ord(letter)
    if code in _UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

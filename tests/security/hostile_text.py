"""Text that attacks whoever shows it, and what must never come out of a program."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import strategies as st

DANGEROUS = (
    "\x00\x07\x08\t\n\x0b\x0c\r\x1b\x7f\x85\x9b\x9d"  # controls that move the cursor, ring, or begin a sequence
    "\u200b\u200c\u200d\u200e\u200f\u061c\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
    "\ud800\udc80\udfff\ufffe\U000e0001\U000e0041\U000e007f\u115f\u3164\U000e0101"
)
GRAMMAR = "\"'`#;|&<>[](){}\\/%$!*_~:=@-. "
WORDS = (
    "[red]", "[/]", "[/red]", "[bold", "[link=http://x]", ":smile:", "-->", "end", "click n0", "%%{init: {}}%%", "]]>",
    "</text>", "<script>", "&amp;", "#35;", "$(x)", "`x`", "\x1b[31m", "\x1b]8;;http://x\x07", "\r\n", "✗ forged", "é漢",
)  # fmt: skip
texts = st.lists(
    st.one_of(st.sampled_from(DANGEROUS + GRAMMAR), st.sampled_from(WORDS), st.characters()), max_size=12
).map("".join)
SOME = ("[red]\n\x1b[2J", "[/]\u202e\x9b\u2028", "[b]\\\r\U000e0041", ":x:\ud800[/r]", "$(x)'\"<b>|&#")
"""Short ones, for commands that cut what they show."""
STYLE = re.compile("\x1b\\[[0-9;]*m")


def raw(text: str, *, allowed: str = "\n") -> set[str]:
    """Characters of a program's output that a terminal or a person could be deceived by."""
    bad = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    return bad - set(allowed)

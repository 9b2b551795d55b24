"""Amounts as Kubernetes writes them: `500m`, `64Gi`, `1e3`; and which resources are accelerators."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_SUFFIXES: dict[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(
    r"([+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?|[+-]?\.[0-9]{1,30})(?:([eE][+-]?[0-9]{1,2})|([numkKMGTPE]i?|))"
)
_ACCELERATOR = re.compile(
    r"gpu|nvidia\.com/|amd\.com/|/mig-|\bmig\b|neuron|\btpu|/tpu|npu\b|ascend|gaudi|habana|\bmlu|/mlu|\bdcu|/vcuda|\bxpu|accelerator"
    r"|resourceclaim|all claims",
    re.IGNORECASE,
)
_ACCELERATED_SHAPE = re.compile(
    r"\b(?:a10g?|a30|a40|a100|[hb][123]00|gb[23]00|l4|l40s?|t4|v100|p[3456](?:de?|en?|dn)?|g4[ad][dn]?|g[56]e?|gr6|trn[12]n?|inf[12]|dl[12]|a[234]x?-(?:high|mega|ultra|edge)\w*|g2-standard\S*|standard_n[cdv]\d*\w*)(?![a-z0-9])"
    r"|standardn[cdv]\w*family",
    re.IGNORECASE,
)


def amount(text: object) -> Decimal | None:
    """The number that a quantity stands for; None when it is none."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        return None
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    if suffix and suffix not in _SUFFIXES:
        return None
    try:
        return Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]
    except InvalidOperation:
        return None


def show(value: Decimal) -> str:
    """A number without needless zeros; large ones in binary units."""
    for suffix in ("Ti", "Gi", "Mi"):
        if value >= _SUFFIXES[suffix]:
            shown = value / _SUFFIXES[suffix]
            return f"{shown:.1f}".rstrip("0").rstrip(".") + suffix
    return f"{value.normalize():f}"


_DEVICE = re.compile(
    r"(?!(?:kubernetes\.io|requests|limits|hugepages|attachable)[./\-])[a-z0-9.\-]+\.[a-z0-9\-]+/[\w.\-]+|rdma/[\w.\-]+",
    re.IGNORECASE,
)
"""An extended resource: `domain/name`. It counts devices of nodes, as GPUs are counted."""


def is_accelerator(resource: str) -> bool:
    """Whether a resource, or a reason that names one, is about GPUs and their like."""
    return _ACCELERATOR.search(resource) is not None or _DEVICE.fullmatch(resource) is not None


def mentions_accelerator(text: str) -> bool:
    """Whether a longer text is about accelerators: their resources, or machine types that have them."""
    return is_accelerator(text) or _ACCELERATED_SHAPE.search(text) is not None

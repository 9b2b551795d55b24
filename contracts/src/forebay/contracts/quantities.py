"""Amounts as people and Kubernetes write them: `4Gi`, `500m`, `1.5`.

Used by job files, project files and mounts, so one text means one number everywhere.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from forebay.contracts.errors import ContractError

_QUANTITY = re.compile(r"(?P<number>\d{1,19}(\.\d{1,9})?)(?P<unit>[A-Za-z]*)", re.ASCII)
_BYTES: dict[str, int] = {
    "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_BINARY = ("Pi", "Ti", "Gi", "Mi", "Ki")
_LARGEST = 2**63 - 1
BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
"""What `parse_bytes` takes, for a JSON schema."""
CPU_PATTERN = r"^[0-9]+(\.[0-9]+)?m?$"
"""What `parse_cpu` takes, for a JSON schema."""


class QuantityError(ContractError):
    """A text that is no amount."""


def parse_bytes(text: str) -> int:
    """Bytes of `4Gi`, `500M`, `1.5G` or `1024`; a part of a byte counts as a whole one."""
    number, unit = _split(text, "write for example 4Gi, 500Mi or 1.5G")
    if unit not in _BYTES:
        close = {"b": "", "B": "", "KB": "k", "K": "k", "MB": "M", "GB": "G", "TB": "T", "g": "G", "m": "M"}.get(unit)
        if unit == "m":
            hint = "'m' is a thousandth here; write M or Mi"
        else:
            hint = f"write {unit!r} as {close!r}" if close else f"known are {', '.join(filter(None, _BYTES))}"
        raise QuantityError(f"{text!r}: the unit {unit!r} is unknown; {hint}")
    return _whole(text, number * _BYTES[unit])


def parse_cpu(text: str) -> float:
    """Processors of `500m`, `2` or `1.5`; a part of a thousandth counts as a whole one."""
    number, unit = _split(text, "write for example 2, 1.5 or 500m")
    if unit not in {"", "m"}:
        raise QuantityError(f"{text!r}: the unit {unit!r} is unknown; write processors (2) or thousandths (500m)")
    return _whole(text, number * (1 if unit else 1000)) / 1000


def show_bytes_quantity(count: int) -> str:
    """The shortest exact text that Kubernetes reads as `count` bytes: `4Gi`."""
    for unit in _BINARY:
        if count and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return str(count)


def show_cpu_quantity(cpus: float) -> str:
    """The text that Kubernetes reads as so many processors: `2`, `500m`."""
    thousandths = int((Decimal(str(cpus)) * 1000).to_integral_value(ROUND_CEILING))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _split(text: str, hint: str) -> tuple[Decimal, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise QuantityError(f"{text!r} is no amount; {hint}")
    return Decimal(found["number"]), found["unit"]


def _whole(text: str, value: Decimal) -> int:
    whole = int(value.to_integral_value(ROUND_CEILING))
    if whole > _LARGEST:
        raise QuantityError(f"{text!r} is more than any machine has")
    return whole

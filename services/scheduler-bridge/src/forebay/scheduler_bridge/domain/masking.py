"""Take credentials out of texts before they go on record: the rules are those of the contracts."""

from __future__ import annotations

from forebay.contracts.masking import MASK, mask

__all__ = ["MASK", "mask"]

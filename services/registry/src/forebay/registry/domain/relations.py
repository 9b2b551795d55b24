"""How nodes hang together, and the form of what events say about them."""

from __future__ import annotations

from typing import Any

from forebay.contracts.body import Value
from forebay.registry.domain.nodes import Link

Statement = tuple[str, dict[str, Any], tuple[Link, ...]]
"""(node, values, parents). Values are JSON values without None, so that a stored fact equals the fresh one."""

UPLOADED_IN = "uploaded-in"
HOLDS = "holds-episodes-of"
DERIVED_FROM = "derived-from"
READS = "reads"
STARTS_FROM = "starts-from"
ATTEMPT_OF = "attempt-of"
RESUMED_FROM = "resumed-from"
WRITTEN_BY = "written-by"
MADE_FROM = "made-from"
BASED_ON = "based-on"
EVALUATES = "evaluates"
RELEASES = "releases"
JUSTIFIED_BY = "justified-by"

MOVES_TAG = frozenset({"DatasetTagged", "DatasetUntagged"})
NAMES_NUMBER = frozenset({"JobSubmitted", "DatasetVersionCommitted", "ModelVersionRegistered"})
"""Events that make a name's next number known."""

WRITES_FILES = frozenset({"CheckpointWritten", "CheckpointImported"})


def known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def plain(value: Value | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)

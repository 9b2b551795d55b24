"""Names: ids, slugs, shards, content digests and logical dataset names.

Ids and projects are Kubernetes label values as they stand, so one id serves as
subject token, label, folder name and document key.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from forebay.contracts.errors import InvalidNameError

ID_PATTERN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_ID = re.compile(ID_PATTERN)
_LONGEST_INDEX = 9
_VERSION = re.compile(r"v(\d+)")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_PARTS = json.JSONEncoder(separators=(",", ":"))
CLUSTER_PROJECT = "_cluster"
"""The project of facts about the cluster itself; no user can own it."""


def check_id(value: str) -> str:
    """Return `value` when it is an id, else raise `InvalidNameError`."""
    if _ID.fullmatch(value) is None:
        msg = (
            f"{value!r} is not a valid id: use 1 to 63 lower-case letters, digits and '-',"
            f" starting and ending with a letter or digit (for example {slug(value)!r})"
        )
        raise InvalidNameError(msg)
    return value


def check_name(value: str) -> str:
    """Like `check_id`, and refuse `v<number>`, which is reserved for versions."""
    check_id(value)
    if _VERSION.fullmatch(value):
        msg = f"{value!r} is reserved for dataset versions: choose a name that is not 'v' and a number"
        raise InvalidNameError(msg)
    return value


Id = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$")]
Name = Annotated[str, AfterValidator(check_name)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def slug(source: str) -> str:
    """A stable id for any name, e.g. `lerobot/aloha_sim_x` -> `lerobot-aloha-sim-x`.

    A name that is already an id stays as it is. A name that loses information
    gets a short digest, so that two different names never share a slug by accident.
    """
    if _ID.fullmatch(source):
        return source
    plain = re.sub(r"[^a-z0-9]+", "-", source.lower()).strip("-")
    reversible = re.fullmatch(r"[a-z0-9]+([/_.-][a-z0-9]+)*", source) is not None
    if plain and reversible and len(plain) <= 63:
        return plain
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    head = plain[:54].rstrip("-")
    return f"{head}-{digest}" if head else f"x-{digest}"


def shard(key: str) -> str:
    """Two hex digits for an id: the subject key where there are millions of ids."""
    return hashlib.sha256(key.encode()).hexdigest()[:2]


def stable_id(*parts: object) -> str:
    """32 hex digits made of `parts`: equal parts, equal id, on every machine."""
    text = _PARTS.encode([str(part) for part in parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def canonical_json(value: Any) -> bytes:
    """The one byte string of a JSON value: sorted keys, no spaces, UTF-8."""
    return _CANONICAL.encode(value).encode()


def content_digest(value: Any) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def version_number(text: str) -> int | None:
    """17 for `v17`, None for anything that is not a version."""
    found = _VERSION.fullmatch(text)
    return int(found.group(1)) if found else None


def split_episode_name(text: str) -> tuple[str, int] | None:
    """`pick-place@v3/17` -> the version's name and the episode's number in it; None for anything else."""
    version, slash, index = text.rpartition("/")
    if not slash or "@" not in version or not (index.isascii() and index.isdecimal()) or len(index) > _LONGEST_INDEX:
        return None
    return version, int(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalName:
    """`dataset:pick-place@train-ready` taken apart: what kind, which name, which tag or version."""

    kind: str
    name: str
    selector: str

    @property
    def version(self) -> int | None:
        """The version number when the selector names one, else None (it is a tag)."""
        return version_number(self.selector)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}@{self.selector}"


def parse_logical_name(text: str, *, kind: str = "dataset") -> LogicalName:
    """Parse `[kind:]name[@tag-or-version]`; a missing selector means `train-ready`.

    Raises `InvalidNameError` that says which part is wrong. A name such as
    `lerobot/aloha_sim_x` is accepted and becomes its slug.
    """
    head, colon, rest = text.partition(":")
    found_kind, body = (head, rest) if colon else (kind, text)
    if found_kind not in {"dataset", "model"}:
        msg = f"{text!r}: the kind must be 'dataset' or 'model', not {found_kind!r}"
        raise InvalidNameError(msg)
    name, at, selector = body.partition("@")
    if not name:
        msg = f"{text!r}: the name is empty; write for example 'dataset:pick-place@train-ready'"
        raise InvalidNameError(msg)
    if at and not selector:
        msg = f"{text!r}: nothing stands after '@'; write a tag ('@train-ready') or a version ('@v17')"
        raise InvalidNameError(msg)
    return LogicalName(kind=found_kind, name=check_name(slug(name)), selector=check_id(selector or "train-ready"))

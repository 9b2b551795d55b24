"""Where a dataset lies, as people write it: a folder, a file URI, or `s3://bucket/prefix`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from forebay.ingest.domain.breach import printable
from forebay.ingest.errors import PlaceUnknownError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Place:
    """A prefix in a bucket."""

    bucket: str
    prefix: str
    endpoint: str | None = None
    """URL of the server; None: Amazon's own, or what the environment says."""

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"


Place = Path | S3Place


def parse_place(text: str, endpoint: str | None = None) -> Place:
    """Read what somebody wrote; raises `PlaceUnknownError` that says what can be written instead."""
    if not text or "\0" in text:
        msg = "no place is given; write a folder or s3://bucket/prefix"
        raise PlaceUnknownError(msg)
    scheme, found, rest = text.partition("://")
    if not found:
        return Path(text)
    if scheme == "file" and rest.startswith(("/", "localhost/")):
        return Path(_decoded(rest.removeprefix("localhost")))
    bucket, _, prefix = rest.partition("/")
    if scheme == "s3" and _BUCKET.fullmatch(bucket) and not set(prefix) & {"?", "#"}:
        return S3Place(bucket, prefix.strip("/"), endpoint)
    msg = f"{printable(text)!r} is no place that datasets are read from; write a folder or s3://bucket/prefix"
    raise PlaceUnknownError(msg)


def _decoded(path: str) -> str:
    """Percent signs of a URI as the bytes that they stand for."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found.group(1), 16)]), path.encode())
    return raw.decode("utf-8", "surrogateescape")

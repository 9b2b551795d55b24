"""Ingest's settings, read from FOREBAY_* at start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from forebay.runtime.settings import ServiceSettings, environment


class IngestSettings(ServiceSettings):
    """What ingest needs beside what every service needs."""

    pool: Path | None = None
    """Folder of the data pool; default `<home>/pool`. Uploads are read and versions written here and nowhere else."""
    pool_kind: Literal["juicefs", "folder"] = "folder"
    """What the pool is: a JuiceFS mount, or a plain folder."""

    policies: Path | None = None
    """Folder of validation policies, `<project>.yaml` each; default `<home>/policies`."""

    validators: int = max(2, min(4, os.cpu_count() or 1))
    """Uploads that are validated at once. One project never holds the last of these places, so there are at least two.
    Each may use every core, and up to 2 GiB of memory per core."""

    @property
    def policy_folder(self) -> Path:
        return (self.policies or self.home / "policies").absolute()

    @property
    def pool_folder(self) -> Path:
        return (self.pool or self.home / "pool").absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How object stores are reached: the usual variables of AWS tools, nothing of our own."""

    endpoint: str | None = None
    """AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; None: Amazon's own servers."""
    region: str = "us-east-1"
    """AWS_REGION or AWS_DEFAULT_REGION."""
    access_key_id: str | None = None
    """AWS_ACCESS_KEY_ID; without it requests are not signed, which public buckets allow."""
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def s3_settings(environ: Mapping[str, str] | None = None) -> S3Settings:
    """Read the environment now; keys may be exchanged while a service runs."""
    found = environment() if environ is None else environ
    return S3Settings(
        endpoint=found.get("AWS_ENDPOINT_URL_S3") or found.get("AWS_ENDPOINT_URL") or None,
        region=found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION") or "us-east-1",
        access_key_id=found.get("AWS_ACCESS_KEY_ID") or None,
        secret_access_key=found.get("AWS_SECRET_ACCESS_KEY") or None,
        session_token=found.get("AWS_SESSION_TOKEN") or None,
    )

"""Keys of object stores: where they come from, and that they are shown to nobody.

A file holds them, `object-stores.json` in the installation's home folder or wherever
FOREBAY_OBJECT_STORES says, readable by its owner alone:

    {"stores": {"robots": {"endpoint": "http://minio:9000", "access_key_id": "…", "secret_access_key": "…",
                           "session_token": "…", "expires": "2026-12-01T00:00:00Z"}}}

`*` stands for every other bucket. Without a file the usual variables of AWS tools hold.
The file is read again each time, so keys that live for an hour can be put there by
whoever makes them. Keys never travel in events, and no `repr` shows them.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from forebay.runtime.errors import SettingsError
from forebay.runtime.settings import environment

FILE = "object-stores.json"
VARIABLE = "FOREBAY_OBJECT_STORES"


class StoreKeys(BaseModel):
    """How one bucket is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    endpoint: str | None = None
    """URL of the server; None: as the version says, or Amazon's own."""
    region: str = "us-east-1"
    access_key_id: SecretStr | None = None
    """None: requests are not signed, which public buckets allow."""
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    expires: AwareDatetime | None = None

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """What Lance and obstore want to be told; `endpoint` is used when these keys name none. Not for showing."""
        where = self.endpoint or endpoint
        secrets = {
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_session_token": self.session_token,
        }
        told = {name: value.get_secret_value() for name, value in secrets.items() if value is not None}
        told |= {"aws_region": self.region, "aws_virtual_hosted_style_request": "false"}
        if where is not None:
            told["aws_endpoint"] = where
            if urlsplit(where).scheme == "http":
                told["allow_http"] = "true"
        if self.access_key_id is None:
            told["aws_skip_signature"] = "true"
        return told


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    stores: Mapping[str, StoreKeys] = Field(default_factory=dict)


def keys_of(bucket: str, *, home: Path, environ: Mapping[str, str] | None = None) -> StoreKeys:
    """The keys of a bucket as they are now; raises `SettingsError` when they cannot be had."""
    environ = environment() if environ is None else environ
    named = environ.get(VARIABLE)
    path = Path(named) if named else home / FILE
    if not named and not path.exists():
        return _from_variables(environ)
    found = _read(path).stores
    keys = found.get(bucket) or found.get("*")
    if keys is None:
        msg = f"{path} has no keys for the object store that this data lies in; ask its owner for them"
        raise SettingsError(msg)
    if keys.expires is not None and keys.expires <= datetime.now(UTC):
        msg = f"the keys in {path} were good until {keys.expires:%Y-%m-%d %H:%M} UTC; put new ones there"
        raise SettingsError(msg)
    return keys


def _read(path: Path) -> _File:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            msg = f"{path} holds keys and may be read by others than its owner: chmod 600 {path}"
            raise SettingsError(msg)
        return _File.model_validate_json(path.read_bytes())
    except OSError as error:
        msg = f"the keys of object stores in {path} cannot be read: {error.strerror}"
        raise SettingsError(msg) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        msg = f"{path} does not fit at {'.'.join(map(str, first['loc'])) or 'its start'}: {first['msg']}"
        raise SettingsError(msg) from None


def _from_variables(environ: Mapping[str, str]) -> StoreKeys:
    return StoreKeys(
        endpoint=environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None,
        region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        access_key_id=_secret(environ.get("AWS_ACCESS_KEY_ID")),
        secret_access_key=_secret(environ.get("AWS_SECRET_ACCESS_KEY")),
        session_token=_secret(environ.get("AWS_SESSION_TOKEN")),
    )


def _secret(value: str | None) -> SecretStr | None:
    return SecretStr(value) if value else None


def split_bucket(uri: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; raises `ValueError` for anything else."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        msg = f"{uri} is no place on object storage, which is written s3://bucket/prefix"
        raise ValueError(msg)
    return parts.netloc, parts.path.strip("/")

"""Objects below the place that a version gets on object storage: listed, written, and read back for their digest.

Of what a store answers only codes are passed on: the rest can hold URLs and ids of keys.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.ingest.errors import ObjectStoreError, StorageUnavailableError
from forebay.runtime.errors import SettingsError
from forebay.runtime.object_stores import keys_of, split_bucket

_CHUNK = 8 << 20
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_LASTING = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "NoSuchBucket"})
_ADVICE = "see object-stores.json, or AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL of ingest"


class PlacedObjects:
    """What lies below `s3://bucket/prefix`. Raises `StorageUnavailableError` for what may pass, else `ObjectStoreError`."""

    def __init__(self, root: str, home: Path) -> None:
        from obstore.store import S3Store  # noqa: PLC0415 only versions on S3 need it

        self._root = root
        bucket, prefix = split_bucket(root)
        try:
            config: Any = keys_of(bucket, home=home).options()
        except SettingsError as error:
            raise ObjectStoreError(str(error)) from None
        config = {name: value for name, value in config.items() if name != "allow_http"}
        options: Any = {"allow_http": True, "timeout": "120s", "connect_timeout": "5s"}
        self._store = S3Store(
            bucket, prefix=prefix, config=config, client_options=options, retry_config={"max_retries": 3}
        )

    def sizes(self) -> dict[str, int]:
        """Name and size of everything that is there."""
        import obstore  # noqa: PLC0415

        with self._translated("listed"):
            return {str(one["path"]): int(one["size"]) for page in obstore.list(self._store) for one in page}

    def put(self, name: str, path: Path) -> None:
        """Write a file; large ones in parts."""
        import obstore  # noqa: PLC0415

        with self._translated(f"written ({name})"):
            obstore.put(self._store, name, path)

    def digest(self, name: str) -> str:
        """SHA-256 of what a reader gets."""
        import obstore  # noqa: PLC0415

        digest = hashlib.sha256()
        with self._translated(f"read back ({name})"):
            for chunk in obstore.get(self._store, name).stream(min_chunk_size=_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except (BaseError, FileNotFoundError, PermissionError) as error:
            found = _CODE.search(str(error))
            code = found[1] if found else "no answer that says more"
            msg = f"{self._root} cannot be {done}: the object store says {code}; {_ADVICE}"
            lasting = code in _LASTING or isinstance(error, PermissionError)
            raise (ObjectStoreError if lasting else StorageUnavailableError)(msg) from None

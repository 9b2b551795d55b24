"""Object storage as planning and checking see it: sizes, etags, listings and ranges of objects, with keys that stay inside.

What a store answers can hold URLs, ids of keys and signatures, so of its errors only
the code is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from forebay.cache.errors import DataUnreadableError, OriginError, OriginTrouble
from forebay.runtime.errors import SettingsError
from forebay.runtime.object_stores import StoreKeys, keys_of, split_bucket

if TYPE_CHECKING:
    from obstore.store import S3Store

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_DENIED = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})
_RETRIES = {"max_retries": 4}
_PATIENCE = {"timeout": "60s", "connect_timeout": "5s"}


class ObjectStores:
    """Opens buckets with the keys that hold now. Used from several threads."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._open: dict[str, tuple[StoreKeys, S3Store]] = {}
        self._lock = Lock()

    def options(self, uri: str) -> dict[str, str]:
        """What Lance is told to open a table here. Holds the keys."""
        return self._keys(split_bucket(uri)[0]).options()

    def bucket(self, name: str) -> S3Store:
        from obstore.store import S3Store  # noqa: PLC0415 only data on object storage needs it

        keys = self._keys(name)
        with self._lock:
            known = self._open.get(name)
            if known is None or known[0] != keys:  # keys may be exchanged while we run
                config: Any = keys.options()
                config = {key: value for key, value in config.items() if key != "allow_http"}
                options: Any = {"allow_http": True, **_PATIENCE}
                retries: Any = _RETRIES
                store = S3Store(name, config=config, client_options=options, retry_config=retries)
                known = self._open[name] = (keys, store)
            return known[1]

    def _keys(self, bucket: str) -> StoreKeys:
        try:
            return keys_of(bucket, home=self._home)
        except SettingsError as error:
            raise OriginError("refused", str(error)) from None


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Errors of the store in our own: what is not there is unreadable, everything else may pass."""
    from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415

    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        code = found[1] if (found := _CODE.search(str(error))) else "no such object"
        msg = f"{path} is not there ({code})"
        raise DataUnreadableError(msg) from None
    except (BaseError, OSError) as error:
        raise origin_trouble(path, str(error)) from None


def origin_trouble(path: str, text: str) -> OriginError:
    """What an answer of the store means, without its words."""
    code = found[1] if (found := _CODE.search(text)) else None
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    kind: OriginTrouble = "unknown"
    told = code or (str(status) if status else "it said nothing")
    if code in _DENIED or status in {401, 403}:
        kind, does = "refused", f"refuses the keys ({told}): see object-stores.json or AWS_ACCESS_KEY_ID"
    elif status >= 500:
        kind, does = "failing", f"fails with {status}: see to the server; it is tried again"
    elif "timed out" in text or "TimedOut" in text:
        kind, does = "slow", "did not answer in time: see to the server and the network between"
    elif "error sending request" in text or "onnect" in text or "decoding response" in text:
        kind, does = "gone", "does not answer: see to the server and the network between"
    else:
        does = f"does not give the bytes ({told})"
    return OriginError(kind, f"{path} cannot be read: its object storage {does}")


class ObjectOrigin:
    """An `Origin` on object storage: paths are `s3://bucket/key`."""

    def __init__(self, stores: ObjectStores) -> None:
        self._stores = stores
        self.read_bytes = 0
        self._lock = Lock()

    def tail(self, path: str, length: int) -> tuple[int, bytes]:
        store, key = self._at(path)
        with translated(path):
            import obstore  # noqa: PLC0415

            answer = obstore.get(store, key, options={"range": {"suffix": length}})
            size, content = int(answer.meta["size"]), bytes(answer.bytes())
        self._count(len(content))
        return size, content

    def read(self, path: str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        store, key = self._at(path)
        with translated(path):
            import obstore  # noqa: PLC0415

            content = bytes(obstore.get_range(store, key, start=start, end=end))
        self._count(len(content))
        return content

    def size(self, path: str) -> int:
        return self.identity(path)[0]

    def names(self, folder: str) -> list[str]:
        store, key = self._at(folder)
        with translated(folder):
            import obstore  # noqa: PLC0415

            found = obstore.list_with_delimiter(store, key)
        files = [str(one["path"]).rsplit("/", 1)[-1] for one in found["objects"]]
        folders = [f"{str(one).rstrip('/').rsplit('/', 1)[-1]}/" for one in found["common_prefixes"]]
        return sorted([*files, *folders])

    def tree(self, folder: str) -> list[tuple[str, int]]:
        store, key = self._at(folder)
        bucket, _ = split_bucket(folder)
        with translated(folder):
            import obstore  # noqa: PLC0415

            return sorted(
                (f"s3://{bucket}/{one['path']}", int(one["size"]))
                for page in obstore.list(store, key)
                for one in page
                if not str(one["path"]).endswith("/")
            )

    def identity(self, path: str) -> tuple[int, str]:
        store, key = self._at(path)
        with translated(path):
            import obstore  # noqa: PLC0415

            told = obstore.head(store, key)
        return int(told["size"]), str(told["e_tag"] or "").strip('"')

    def lance(self, path: str) -> tuple[str, dict[str, Any] | None]:
        return path, dict(self._stores.options(path))

    def _at(self, path: str) -> tuple[S3Store, str]:
        bucket, key = split_bucket(path)
        return self._stores.bucket(bucket), key

    def _count(self, length: int) -> None:
        with self._lock:
            self.read_bytes += length

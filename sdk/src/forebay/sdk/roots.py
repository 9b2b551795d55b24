"""The root of a version: a folder, or a prefix of a bucket. Everything that reads a version goes through one of these.

What a bucket is called, which server has it and with which keys stays in here: readers
name files of the version, and errors name those.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from forebay.runtime.errors import SettingsError
from forebay.runtime.object_stores import StoreKeys, keys_of, split_bucket
from forebay.runtime.regular_files import open_regular, read_regular
from forebay.sdk.errors import DataUnreadableError

if TYPE_CHECKING:
    from obstore.store import S3Store

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_BUFFER = 1 << 20
_LOCAL = "check that the pool is mounted: forebay status"
_REMOTE = "ask whoever keeps this installation for the keys of its object storage, or look whether it answers"
_INSTALL = "install it with: pip install 'forebay[data]'"


class Root(Protocol):
    """Files of one version, by their names below it."""

    def read(self, name: str) -> bytes:
        """The whole file; raises `DataUnreadableError`."""
        ...

    def below(self, folder: str) -> dict[str, int]:
        """Name and size of every file below a folder."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether a Lance table of that name is there."""
        ...

    def source(self, name: str) -> Path | BinaryIO:
        """What Parquet readers open."""
        ...

    def open(self, name: str) -> BinaryIO:
        """For reading; seekable."""
        ...

    def table(self, name: str) -> Any:
        """A Lance table, opened again when its keys have changed since."""
        ...

    def failed(self, name: str, error: Exception) -> DataUnreadableError:
        """What to raise when a table or file that was open cannot be read."""
        ...

    def guarded(self, name: str, file: BinaryIO) -> BinaryIO:
        """The file, its errors said like all others."""
        ...


def root_at(place: str, *, home: Path) -> Root:
    """The root that a path, a file URI or `s3://bucket/prefix` stands for."""
    if place.startswith("s3://"):
        return BucketRoot(place, home)
    from forebay.sdk.inputs import local_path  # noqa: PLC0415 it needs this module for the other half of its work

    return FolderRoot(local_path(place))


class FolderRoot:
    """A folder of this machine, or of a mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"FolderRoot({str(self._folder)!r})"

    def read(self, name: str) -> bytes:
        try:
            return read_regular(self._folder / name)
        except OSError as error:
            msg = f"{self._folder / name} cannot be read ({error.strerror})"
            raise DataUnreadableError(msg, _LOCAL) from error

    def below(self, folder: str) -> dict[str, int]:
        paths = sorted(path for path in (self._folder / folder).rglob("*") if path.is_file())
        return {path.relative_to(self._folder).as_posix(): path.stat().st_size for path in paths}

    def has_table(self, name: str) -> bool:
        return (self._folder / name).is_dir()

    def source(self, name: str) -> Path | BinaryIO:
        return self._folder / name

    def open(self, name: str) -> BinaryIO:
        try:
            return open_regular(self._folder / name)
        except OSError as error:
            msg = f"{name} cannot be read ({error.strerror})"
            raise DataUnreadableError(msg, _LOCAL) from error

    def table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = _open_lance(name, str(self._folder / name), None, _LOCAL)
        return self._tables[name]

    def failed(self, name: str, error: Exception) -> DataUnreadableError:
        return DataUnreadableError(f"{name} cannot be read: {error}", _LOCAL)

    def guarded(self, name: str, file: BinaryIO) -> BinaryIO:  # noqa: ARG002 one of the port's methods
        return file


class BucketRoot:
    """A prefix of a bucket. Keys are looked up each time, so that short-lived ones can be replaced under a running job."""

    def __init__(self, uri: str, home: Path) -> None:
        self._bucket, self._prefix = split_bucket(uri)
        self._home = home
        self._store: tuple[StoreKeys, S3Store] | None = None
        self._tables: dict[str, tuple[StoreKeys, Any]] = {}

    def __repr__(self) -> str:
        return "BucketRoot(…)"

    def read(self, name: str) -> bytes:
        store = self._opened()
        with _hiding(name):
            import obstore  # noqa: PLC0415

            return bytes(obstore.get(store, self._key(name)).bytes())

    def below(self, folder: str) -> dict[str, int]:
        store = self._opened()
        with _hiding(folder or "the version"):
            import obstore  # noqa: PLC0415

            prefix = self._key(folder)
            listed = [one for page in obstore.list(store, prefix) for one in page]
        skip = len(self._prefix) + 1 if self._prefix else 0
        return {str(one["path"])[skip:]: int(one["size"]) for one in listed if not str(one["path"]).endswith("/")}

    def has_table(self, name: str) -> bool:
        store = self._opened()
        with _hiding(name):
            import obstore  # noqa: PLC0415

            return any(page for page in obstore.list(store, self._key(f"{name}/_versions"), chunk_size=1))

    def source(self, name: str) -> Path | BinaryIO:
        return self.open(name)

    def open(self, name: str) -> BinaryIO:
        store = self._opened()
        with _hiding(name):
            import obstore  # noqa: PLC0415

            size = int(obstore.head(store, self._key(name))["size"])
        raw = _ObjectFile(self, name, size)
        return cast("BinaryIO", io.BufferedReader(raw, _BUFFER))

    def part(self, name: str, start: int, end: int) -> bytes:
        """Bytes `[start, end)` of a file."""
        store = self._opened()
        with _hiding(name):
            import obstore  # noqa: PLC0415

            return bytes(obstore.get_range(store, self._key(name), start=start, end=end))

    def table(self, name: str) -> Any:
        keys = self._keys()
        known = self._tables.get(name)
        if known is None or known[0] != keys:
            uri = f"s3://{self._bucket}/{self._key(name)}"
            known = self._tables[name] = (keys, _open_lance(name, uri, keys.options(), _REMOTE))
        return known[1]

    def failed(self, name: str, error: Exception) -> DataUnreadableError:
        return _unreadable(name, str(error))

    def guarded(self, name: str, file: BinaryIO) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_Guarded(name, file), _BUFFER))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".strip("/")

    def _keys(self) -> StoreKeys:
        try:
            return keys_of(self._bucket, home=self._home)
        except SettingsError as error:
            msg = f"this version lies on object storage, and {error}"
            raise DataUnreadableError(msg) from None

    def _opened(self) -> S3Store:
        try:
            from obstore.store import S3Store  # noqa: PLC0415 only data on object storage needs it
        except ImportError as error:
            msg = "this version lies on object storage, and obstore is not installed"
            raise DataUnreadableError(msg, _INSTALL) from error
        keys = self._keys()
        if self._store is None or self._store[0] != keys:
            config: Any = {key: value for key, value in keys.options().items() if key != "allow_http"}
            self._store = (keys, S3Store(self._bucket, config=config, client_options={"allow_http": True}))
        return self._store[1]


class _ObjectFile(io.RawIOBase):
    """A file of a bucket, read in ranges."""

    def __init__(self, root: BucketRoot, name: str, size: int) -> None:
        self._root, self._name, self._size, self._at = root, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        content = self._root.part(self._name, self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class _Guarded(io.RawIOBase):
    """Another library's file, whose errors would tell where it lies."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name, self._file = name, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except (OSError, ValueError, RuntimeError) as error:
            raise _unreadable(self._name, str(error)) from None
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_lance(name: str, uri: str, options: dict[str, str] | None, advice: str) -> Any:
    try:
        import lance  # noqa: PLC0415 the agent works without Lance, and its import is slow
    except ImportError as error:
        msg = "this version is stored as Lance tables, and Lance is not installed"
        raise DataUnreadableError(msg, _INSTALL) from error
    try:
        return lance.dataset(uri, storage_options=options)
    except (OSError, ValueError) as error:
        if options is None:
            msg = f"the table {name} cannot be opened: {error}"
            raise DataUnreadableError(msg, advice) from error
        raise _unreadable(name, str(error)) from None


@contextmanager
def _hiding(name: str) -> Iterator[None]:
    """Of what a store answers, only its code is passed on: the rest holds URLs and ids of keys."""
    from obstore.exceptions import BaseError  # noqa: PLC0415

    try:
        yield
    except (BaseError, OSError) as error:
        raise _unreadable(name, str(error)) from None


def _unreadable(name: str, text: str) -> DataUnreadableError:
    found = _CODE.search(text)
    told = found[1] if found else "it does not answer" if "error sending request" in text else "no such object"
    return DataUnreadableError(f"{name} cannot be read from its object storage ({told})", _REMOTE)

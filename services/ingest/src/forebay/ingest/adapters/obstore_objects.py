"""A dataset's objects below one prefix of an S3 bucket, through obstore: listed, and fetched into files.

Every fetch asks for the very object that was listed, by its etag, so that a dataset
that changes meanwhile is noticed instead of read half old and half new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.ingest.domain.place_uri import S3Place
from forebay.ingest.errors import ObjectStoreError, SourceChangedError

if TYPE_CHECKING:
    from forebay.ingest.settings import S3Settings

_CHUNK = 8 << 20
_RETRIES = 3
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_DENIED = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object as it was listed."""

    size: int
    etag: str


class S3Objects:
    """The objects below one place."""

    def __init__(self, place: S3Place, settings: S3Settings) -> None:
        from obstore.store import S3Store  # noqa: PLC0415 only datasets on S3 need it

        self.place = place
        self.endpoint = place.endpoint or settings.endpoint
        known = {
            "endpoint": self.endpoint,
            "access_key_id": settings.access_key_id,
            "secret_access_key": settings.secret_access_key,
            "session_token": settings.session_token,
        }
        self._store = S3Store(
            place.bucket,
            prefix=place.prefix or None,
            region=settings.region,
            skip_signature=settings.access_key_id is None,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, "timeout": "60s", "connect_timeout": "5s"},
            retry_config={"max_retries": _RETRIES},
            **{key: value for key, value in known.items() if value is not None},  # type: ignore[arg-type]
        )

    def list(self) -> dict[str, ListedObject]:
        """Path below the prefix -> object. Raises `ObjectStoreError`."""
        import obstore  # noqa: PLC0415

        with self._translated("listed"):
            return {
                str(entry["path"]): ListedObject(int(entry["size"]), str(entry["e_tag"] or "").strip('"'))
                for page in obstore.list(self._store, chunk_size=1000)
                for entry in page
                if not str(entry["path"]).endswith("/")
            }

    def fetch(self, name: str, known: ListedObject, target: Path) -> None:
        """Bring one object into a file. Raises `SourceChangedError` when it is not the listed one any more."""
        import obstore  # noqa: PLC0415

        target.parent.mkdir(parents=True, exist_ok=True)
        with self._translated(f"fetched ({name})"), target.open("wb") as file:
            options = {"if_match": f'"{known.etag}"'} if known.etag else {}
            for chunk in obstore.get(self._store, name, options=options).stream(min_chunk_size=_CHUNK):  # type: ignore[arg-type]
                file.write(chunk)
        if target.stat().st_size != known.size:
            msg = f"{self.place.uri}/{name} gave {target.stat().st_size} bytes, {known.size} were listed; look again"
            raise SourceChangedError(msg)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        from obstore.exceptions import BaseError, NotFoundError, PreconditionError  # noqa: PLC0415

        try:
            yield
        except (PreconditionError, NotFoundError, FileNotFoundError) as error:
            msg = f"{self.place.uri} changed while it was {done}; look again when nobody writes there"
            raise SourceChangedError(msg) from error
        except BaseError as error:
            raise ObjectStoreError(self._explain(done, str(error))) from error

    def _explain(self, done: str, text: str) -> str:
        code = found.group(1) if (found := _CODE.search(text)) else None
        where = self.endpoint or "Amazon S3"
        if code == "NoSuchBucket":
            return f"there is no bucket {self.place.bucket!r} at {where}; check the name, and --endpoint"
        if code in _DENIED:
            return (
                f"{self.place.uri} cannot be {done}: {where} answers {code}; "
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if "error sending request" in text:
            return f"{self.place.uri} cannot be {done}: {where} does not answer; check --endpoint or AWS_ENDPOINT_URL"
        first = text.partition("\n")[0][:300]
        return f"{self.place.uri} cannot be {done} at {where}: {code or first}; check --endpoint or AWS_ENDPOINT_URL"

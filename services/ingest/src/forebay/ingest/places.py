"""Opens the place that somebody names as a dataset's folder: on a disk, in a Hugging Face cache, on S3.

Used by the command `validate` and by the worker `register`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain.breach import listed
from forebay.ingest.domain.place_uri import Place, S3Place
from forebay.ingest.errors import PlaceUnknownError
from forebay.ingest.settings import S3Settings
from forebay.runtime.regular_files import read_regular


@contextmanager
def open_place(place: Place, settings: S3Settings) -> Iterator[DatasetFolder]:
    """The dataset there. Raises `PlaceUnknownError`, or `ObjectStoreError` when the store cannot be used."""
    if isinstance(place, S3Place):
        from forebay.ingest.adapters.object_folder import ObjectFolder  # noqa: PLC0415 only datasets on S3 need it
        from forebay.ingest.adapters.obstore_objects import S3Objects  # noqa: PLC0415

        with tempfile.TemporaryDirectory(prefix="forebay-s3-") as workspace:
            yield ObjectFolder(S3Objects(place, settings), Path(workspace))
        return
    if not place.exists():
        msg = f"{place} does not exist; give the folder that contains meta/info.json"
        raise PlaceUnknownError(msg)
    yield DatasetFolder(find_snapshot(place))


def find_snapshot(folder: Path) -> Path:
    """The snapshot to look at when `folder` is one dataset's cache of Hugging Face; any other folder is itself."""
    snapshots = folder / "snapshots"
    if (folder / "meta").exists() or not snapshots.is_dir() or not (folder / "blobs").is_dir():
        return folder
    there = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    try:
        main = read_regular(folder / "refs" / "main", limit=1024).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    if main in there:
        return snapshots / main
    if len(there) == 1:
        return snapshots / there[0]
    msg = f"{folder} has {len(there)} snapshots and no main ({listed(there)}); give one of them"
    raise PlaceUnknownError(msg)

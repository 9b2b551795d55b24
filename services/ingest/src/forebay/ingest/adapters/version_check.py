"""Is a committed version still there and still the one that was committed? Sizes and manifests, not every byte."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import lance

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.ingest.adapters.registered_place import find_change
from forebay.ingest.domain.documents import Version
from forebay.ingest.domain.path_template import safe_relative
from forebay.ingest.errors import StorageUnavailableError, UnsafePathError
from forebay.ingest.settings import s3_settings
from forebay.runtime.regular_files import read_regular


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a version's files."""

    reason: Reason
    message: str


def find_damage(version: Version) -> Damage | None:
    """Compare the root with its manifest and open every table; None when all is well.

    Raises `StorageUnavailableError` when the whole pool is away: then nothing is known.
    """
    label = f"v{version.number} of dataset {version.dataset}"
    if version.access_plan == "A":
        return _registered_change(version, label)
    root = local_path(version.root)
    if root is None:
        return None  # not on this machine
    if not root.is_dir():
        if not any(folder.is_dir() for folder in root.parents[:3]):
            msg = f"{root} cannot be looked at: nothing of its pool is there; check the mount with: forebay status"
            raise StorageUnavailableError(msg)
        text = f"the folder of {label} is gone: {root}; restore it, or name another version"
        return Damage(Reason.DATASET_VERSION_MISSING, text)
    changed = _first_difference(version, root)
    if changed is not None:
        return Damage(Reason.DATASET_CHANGED, f"{label} is not what was committed: {changed}; restore {root}")
    return None


def _registered_change(version: Version, label: str) -> Damage | None:
    """Data that its owner keeps: nothing of ours protects it, so it is looked at again."""
    manifest = local_path(version.checksums_uri)
    if manifest is None or not manifest.is_file():
        text = f"the list of files of {label} is gone: {version.checksums_uri}; register the dataset again"
        return Damage(Reason.DATASET_VERSION_MISSING, text)
    changed = find_change(manifest.parent, version.manifest_sha256, s3_settings())
    if changed is None:
        return None
    text = f"{label} is not what was registered: {changed}; put it back, or register the dataset again"
    return Damage(Reason.DATASET_CHANGED, text)


def _first_difference(version: Version, root: Path) -> str | None:
    manifest = local_path(version.checksums_uri) or root / MANIFEST_FILE
    try:
        content = read_regular(manifest)
    except OSError as error:
        return f"its manifest {manifest.name} cannot be read ({error.strerror})"
    if hashlib.sha256(content).hexdigest() != version.manifest_sha256:
        return f"its manifest {manifest.name} has another digest"
    for entry in json.loads(content)["files"]:
        name, size = str(entry["path"]), int(entry["bytes"])
        try:
            there = (root / safe_relative(name)).stat().st_size
        except FileNotFoundError:
            return f"{name} is not there"
        except (OSError, UnsafePathError) as error:
            return f"{name} cannot be looked at ({error})"
        if there != size:
            return f"{name} has {there} bytes, {size} were committed"
    return _closed_table(root)


def _closed_table(root: Path) -> str | None:
    for path in sorted(root.glob("*.lance")):
        try:
            lance.dataset(str(path)).count_rows()
        except (OSError, ValueError, RuntimeError) as error:
            return f"{path.name} does not open ({str(error).splitlines()[0][:200]})"
    return None


def local_path(uri: str) -> Path | None:
    """The path behind a path or a file URI; None for what lies elsewhere."""
    if not uri:
        return None
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path))
    return None if parts.scheme or not uri.startswith("/") else Path(uri)

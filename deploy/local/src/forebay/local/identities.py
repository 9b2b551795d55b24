"""The nkeys of an installation: one per part, one per project for collectors and agents, and the issuer's.

Keys are made once and never replaced; a seed is readable by its owner only and
is never logged.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import nkeys

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_id
from forebay.contracts.parts import Part
from forebay.contracts.permissions import Permission
from forebay.local.errors import LocalError
from forebay.local.home import Home

ISSUER = "attempts"
"""With this key the bridge signs what pods may do."""


def known_projects(home: Home) -> tuple[str, ...]:
    """Projects that have keys."""
    prefix = f"{Part.COLLECTOR}."
    names = (path.name.removeprefix(prefix).removesuffix(".nk") for path in home.keys.glob(f"{prefix}*.nk"))
    return tuple(sorted(names))


def check_projects(names: tuple[str, ...]) -> tuple[str, ...]:
    """Raises `LocalError` for a name that cannot be a project."""
    for name in names:
        try:
            check_id(name)
        except InvalidNameError as error:
            msg = f"project {error}"
            raise LocalError(msg, "choose another project name") from error
    return tuple(sorted(set(names)))


def ensure_keys(home: Home, permissions: tuple[Permission, ...]) -> tuple[dict[str, str], list[str]]:
    """Make missing keys; returns identity -> public key, and the identities that are new."""
    made = [item.identity for item in permissions if _make(home.key(item.identity))]
    return {item.identity: public_key(home.key(item.identity)) for item in permissions}, made


def ensure_issuer(home: Home) -> str:
    """The public half of the key with which the bridge signs; made when it is missing."""
    _make(home.key(ISSUER), nkeys.PREFIX_BYTE_ACCOUNT)
    return public_key(home.key(ISSUER))


def public_key(path: Path) -> str:
    """The public half. Raises `LocalError` that names the file, never the seed."""
    try:
        seed = path.read_bytes().strip()
        return _text(nkeys.from_seed(bytearray(seed)).public_key)
    except (OSError, ValueError, nkeys.NkeysError) as error:
        msg = f"the key file {path} cannot be read ({type(error).__name__})"
        raise LocalError(msg, "put the old file back, or delete it and run: forebay bus init") from error


def _make(path: Path, kind: int = nkeys.PREFIX_BYTE_USER) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(nkeys.encode_seed(secrets.token_bytes(32), kind))
    return True


def _text(value: bytes | bytearray | str) -> str:
    return value if isinstance(value, str) else bytes(value).decode()

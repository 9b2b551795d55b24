"""What the bus is answered about somebody who connects: a JWT with permissions, signed with the issuer's key.

The format is NATS's own (auth callout, JWT version 2). The seed stays in this object.
"""

from __future__ import annotations

import json
from base64 import b32encode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import nkeys

from forebay.contracts.permissions import Permission
from forebay.runtime.connection import read_seed
from forebay.scheduler_bridge.domain.speakers import Asked
from forebay.scheduler_bridge.errors import IssuerKeyError

Claims = dict[str, Any]
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_SUBSCRIPTIONS = 64
"""More than one client of ours ever has."""


class Issuer:
    """Signs answers with one account key."""

    def __init__(self, seed: str) -> None:
        self._pair = nkeys.from_seed(bytearray(seed.encode("ascii")))
        public = self._pair.public_key
        self.public_key = public if isinstance(public, str) else bytes(public).decode("ascii")

    @classmethod
    def read(cls, path: Path) -> Issuer:
        """Raises `Unreachable` or `IssuerKeyError`, which name the file and never what is in it."""
        try:
            found = cls(read_seed(path))
        except (ValueError, nkeys.NkeysError):
            raise IssuerKeyError(path) from None
        if not found.public_key.startswith("A"):
            raise IssuerKeyError(path)
        return found

    def admit(self, asked: Asked, permission: Permission, *, now: int, until: int) -> bytes:
        """The connection may do what this permission says until then."""
        nats = {
            "type": "user",
            "version": 2,
            "pub": {"allow": list(permission.publish)},
            "sub": {"allow": list(permission.subscribe)},
            "subs": _SUBSCRIPTIONS,
            "data": -1,
            "payload": -1,
        }
        user = {
            "aud": permission.identity,
            "sub": asked.connection,
            "name": f"{asked.project}/{asked.job}",
            "exp": until,
            "nats": nats,
        }
        return self._answer(asked, {"jwt": self._sign(user, now)}, now)

    def refuse(self, asked: Asked, why: str, *, now: int) -> bytes:
        """It may not connect."""
        return self._answer(asked, {"error": why}, now)

    def _answer(self, asked: Asked, content: Claims, now: int) -> bytes:
        nats = {"type": "authorization_response", "version": 2, **content}
        return self._sign({"aud": asked.server, "sub": asked.connection, "nats": nats}, now).encode("ascii")

    def _sign(self, claims: Claims, now: int) -> str:
        whole = {**claims, "iss": self.public_key, "iat": now}
        whole["jti"] = b32encode(sha256(_json(whole)).digest()).rstrip(b"=").decode("ascii")
        text = f"{_part(_json(_HEADER))}.{_part(_json(whole))}"
        return f"{text}.{_part(self._pair.sign(text.encode('ascii')))}"


def _json(value: Claims) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _part(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode("ascii")

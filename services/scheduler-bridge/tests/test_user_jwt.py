"""What the bus is answered about pods: signed with the issuer's key, for one connection, and the seed is never shown."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import nkeys
import pytest
from forebay.contracts.permissions import permission_of_attempt
from forebay.scheduler_bridge.adapters.user_jwt import Issuer
from forebay.scheduler_bridge.domain.speakers import Asked
from forebay.scheduler_bridge.errors import IssuerKeyError

SEED = nkeys.encode_seed(b"s" * 32, nkeys.PREFIX_BYTE_ACCOUNT).decode()
ASKED = Asked(server="N1", connection="U1", project="arm-lab", job="pick-1", token="t")  # noqa: S106 no secret


def part(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verified(token: str) -> dict[str, Any]:
    """The claims of a JWT whose signature is the issuer's."""
    head, middle, signature = token.split(".")
    nkeys.from_seed(bytearray(SEED.encode())).verify(f"{head}.{middle}".encode(), part(signature))
    assert json.loads(part(head)) == {"typ": "JWT", "alg": "ed25519-nkey"}
    claims: dict[str, Any] = json.loads(part(middle))
    assert claims["iss"] == Issuer(SEED).public_key
    return claims


def test_an_answer_is_for_one_connection_to_one_server() -> None:
    """Inside it is the user: one job's permissions, in the account of its project's attempts, until its end."""
    permission = permission_of_attempt("arm-lab", "pick-1")
    answer = verified(Issuer(SEED).admit(ASKED, permission, now=1_000, until=1_600).decode())
    assert (answer["aud"], answer["sub"], answer["iat"]) == ("N1", "U1", 1_000)
    user = verified(answer["nats"]["jwt"])
    assert (user["aud"], user["sub"], user["exp"]) == ("attempts.arm-lab", "U1", 1_600)
    assert user["nats"]["pub"] == {"allow": list(permission.publish)}
    assert user["nats"]["sub"] == {"allow": ["_INBOX_agent_arm-lab_pick-1.>"]}


def test_a_refusal_says_why_and_carries_no_user() -> None:
    """The reason is for the server's log."""
    answer = verified(Issuer(SEED).refuse(ASKED, "the job is over", now=1_000).decode())
    assert answer["nats"] == {"type": "authorization_response", "version": 2, "error": "the job is over"}


@pytest.mark.parametrize("content", ["", "SUAM", nkeys.encode_seed(b"s" * 32, nkeys.PREFIX_BYTE_USER).decode()])
def test_a_file_without_an_account_key_is_named_and_not_shown(tmp_path: Path, content: str) -> None:
    """A key of another kind would sign answers that the server throws away."""
    path = tmp_path / "attempts.nk"
    path.write_text(content)
    with pytest.raises(IssuerKeyError) as error:
        Issuer.read(path)
    assert str(path) in str(error.value)
    assert error.value.__cause__ is None
    assert not content or content not in f"{error.value!r}"


def test_the_seed_is_not_shown_by_its_holder(tmp_path: Path) -> None:
    """Neither as text nor in a traceback's locals."""
    path = tmp_path / "attempts.nk"
    path.write_text(f"{SEED}\n")
    issuer = Issuer.read(path)
    assert SEED not in f"{issuer!r} {issuer} {vars(issuer)!r}"

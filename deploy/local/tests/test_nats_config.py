"""The server configuration is a pure function of the permissions; each account imports only its own list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forebay.contracts.parts import Part
from forebay.contracts.permissions import attempts_of, permissions
from forebay.local.nats_config import render

IDENTITIES = permissions(("arm-lab", "dog-lab"))


def rendered(issuer: str | None = None) -> dict[str, Any]:
    keys = {item.identity: f"KEY-{item.identity}" for item in IDENTITIES}
    where = Path("/n")
    text = render(
        IDENTITIES, keys, issuer=issuer, port=4222, store_dir=where, max_store_bytes=1 << 30, sync_interval="1s"
    )
    config: dict[str, Any] = json.loads(text)
    return config


def test_every_user_has_a_key_and_permissions() -> None:
    """No password, no user without limits, no default user."""
    config = rendered()
    assert "no_auth_user" not in config
    accounts = dict(config["accounts"])
    assert config["system_account"] == "system"
    # Nobody lives in the server's own account; the admin may ask it how it is, and nothing else.
    health = {"service": "$SYS.REQ.SERVER.PING.HEALTHZ", "accounts": ["log"]}
    assert accounts.pop("system") == {"exports": [health]}
    for name, account in accounts.items():
        assert [set(user) for user in account["users"]] == [{"nkey", "permissions"}], name


def test_only_the_log_account_has_jetstream() -> None:
    """Nobody else can make a stream that captures what is not theirs."""
    accounts = rendered()["accounts"]
    assert [name for name, account in accounts.items() if account.get("jetstream")] == ["log"]


def test_an_account_imports_what_its_identity_may_publish() -> None:
    """Imports from the log and the publish list name the same subjects."""
    accounts = rendered()["accounts"]
    for item in IDENTITIES:
        if item.source.part in {Part.ADMIN, Part.OPERATOR}:
            continue
        services = [entry["service"]["subject"] for entry in accounts[item.identity]["imports"] if "service" in entry]
        assert services == [subject for subject in item.publish if not subject.startswith("progress.")]


def test_a_subject_that_the_server_would_answer_itself_is_imported_under_another_name() -> None:
    """The mapping, the import and the permission agree, so the client needs to know nothing."""
    account = rendered()["accounts"]["ingest"]
    assert account["mappings"]["$JS.API.STREAM.INFO.FOREBAY"] == "log-api.STREAM.INFO.FOREBAY"
    renamed = {entry.get("to") for entry in account["imports"]} - {None}
    assert renamed == set(account["mappings"].values())
    assert renamed <= set(account["users"][0]["permissions"]["publish"]["allow"])


def test_only_services_may_answer() -> None:
    """A right to respond is a right to publish to whoever asked; collectors have none."""
    for item in IDENTITIES:
        account = rendered()["accounts"]["log" if item.source.part is Part.ADMIN else item.identity]
        assert ("allow_responses" in account["users"][0]["permissions"]) == bool(item.answers)


def test_only_pods_are_asked_about_and_only_into_their_accounts() -> None:
    """Whoever has a key is let in without the bridge; what the bridge admits lands in an account of attempts."""
    assert "authorization" not in rendered()
    config = rendered("ISSUER")
    callout = config["authorization"]["auth_callout"]
    keys = {user["nkey"] for account in config["accounts"].values() for user in account.get("users", ())}
    assert set(callout["auth_users"]) == keys
    assert callout["allowed_accounts"] == ["attempts.arm-lab", "attempts.dog-lab"]
    assert (callout["account"], callout["issuer"]) == (str(Part.BRIDGE), "ISSUER")
    imported = [entry["service"] for entry in config["accounts"]["attempts.arm-lab"]["imports"]]
    assert {entry["subject"] for entry in imported} == set(attempts_of("arm-lab").publish)
    assert all("arm-lab" in entry["subject"] for entry in imported)


def test_the_server_listens_on_this_machine_only() -> None:
    """The laptop's bus is not the network's bus."""
    assert rendered()["host"] == "127.0.0.1"

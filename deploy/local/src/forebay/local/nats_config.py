"""The NATS server's configuration, made from contracts; a pure function of its arguments.

One account per identity. The log account owns the streams and exports narrow
services; every other account imports only the subjects of its own permissions.
So a reply subject, which NATS does not check, can never lead out of the account
that asked. User permissions repeat the same lists: a mistake is then answered
with a permission error that names the subject instead of silence.

Pods have no key here. The attempts of a project share an account, and for whoever
connects with a pod's token the server asks the bridge, which answers with the
permissions of one job (ADR 0007). Identities with a key are never asked about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.contracts.parts import SERVICES, Part
from forebay.contracts.permissions import ADMITS, BUS_HEALTH, LOG_ACCOUNT, Permission, attempts_of
from forebay.contracts.streams import MAX_MESSAGE_BYTES
from forebay.contracts.subjects import ASK_ROOT, DEAD_ROOT, EVENT_ROOT, PROGRESS_ROOT

MAX_PAYLOAD = 1 << 20
"""An answer's page may be this large; an event is held to less by its stream."""
_REPLY_WITHIN = "2m"
_SYSTEM = "system"
"""The account in which the server speaks about itself; the admin may ask it one question, and nobody lives in it."""
assert MAX_PAYLOAD > MAX_MESSAGE_BYTES  # noqa: S101 two constants that must agree

_STREAMED = "stream"
"""More than one message may come back."""
_RENAMED_ROOT = "log-api"
_ANSWERED_LOCALLY = ("$JS.API.CONSUMER.INFO.", "$JS.API.STREAM.")
_LOG_EXPORTS: tuple[tuple[str, str], ...] = (
    (f"{EVENT_ROOT}.>", ""),
    (f"{DEAD_ROOT}.>", ""),
    ("$JS.ACK.*.*.>", ""),
    ("$JS.API.CONSUMER.MSG.NEXT.*.*", _STREAMED),
    ("$JS.API.CONSUMER.INFO.*.*", ""),
    ("$JS.API.STREAM.INFO.*", ""),
    ("$JS.API.STREAM.MSG.GET.*", ""),
    ("$JS.API.DIRECT.GET.*", _STREAMED),
    ("$JS.API.DIRECT.GET.*.>", _STREAMED),
)


def render(
    permissions: tuple[Permission, ...],
    public_keys: Mapping[str, str],
    *,
    issuer: str | None = None,
    port: int,
    store_dir: Path,
    max_store_bytes: int,
    sync_interval: str,
) -> str:
    """The configuration file's text (JSON is a subset of NATS's own format).

    With the public key of an `issuer` pods are admitted, too.
    """
    accounts = {_account_name(item): _account(item, public_keys[item.identity]) for item in permissions}
    accounts[_SYSTEM] = {"exports": [{"service": BUS_HEALTH, "accounts": [LOG_ACCOUNT]}]}
    config: dict[str, Any] = {
        "server_name": "forebay",
        "host": "127.0.0.1",
        "port": port,
        "max_payload": MAX_PAYLOAD,
        "max_connections": 1024,
        "ping_interval": "20s",
        "write_deadline": "10s",
        "jetstream": {
            "store_dir": str(store_dir),
            "max_memory_store": 64 << 20,
            "max_file_store": max_store_bytes,
            "sync_interval": sync_interval,
        },
        "system_account": _SYSTEM,
        "accounts": accounts,
    }
    if issuer is not None:
        projects = sorted({item.source.project for item in permissions if item.source.project})
        attempts = {item.identity: {"imports": _imports(item)} for item in map(attempts_of, projects)}
        accounts |= attempts
        config["authorization"] = {
            "auth_callout": {
                "issuer": issuer,
                "account": str(ADMITS),
                "auth_users": [public_keys[item.identity] for item in permissions],
                "allowed_accounts": list(attempts),
            }
        }
    return json.dumps(config, indent=1) + "\n"


def _account_name(item: Permission) -> str:
    return LOG_ACCOUNT if item.source.part is Part.ADMIN else item.identity


def _account(item: Permission, public_key: str) -> dict[str, Any]:
    user = {"nkey": public_key, "permissions": _user_permissions(item)}
    if item.source.part is Part.ADMIN:
        exports = [{"service": subject, **({"response_type": kind} if kind else {})} for subject, kind in _LOG_EXPORTS]
        asks = [{"service": {"account": _SYSTEM, "subject": BUS_HEALTH}}]
        return {"jetstream": "enabled", "users": [user], "exports": exports, "imports": asks}
    account: dict[str, Any] = {"users": [user], "imports": _imports(item)}
    if renamed := {subject: _local(subject) for subject in item.publish if _local(subject) != subject}:
        account["mappings"] = renamed
    if item.answers:
        progress = f"{PROGRESS_ROOT}.{item.source.part}.>"
        account["exports"] = [*({"service": subject} for subject in item.answers), {"stream": progress}]
    return account


def _user_permissions(item: Permission) -> dict[str, Any]:
    permissions: dict[str, Any] = {
        # The server maps a subject before it looks at permissions, so the mapped one is listed.
        "publish": {
            "allow": [_local(subject) if item.source.part is not Part.ADMIN else subject for subject in item.publish]
        },
        "subscribe": {"allow": list(item.subscribe)},
    }
    if item.answers:
        permissions["allow_responses"] = {"max": 1, "expires": _REPLY_WITHIN}
    return permissions


def _imports(item: Permission) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for subject in item.publish:
        root, *rest = subject.split(".")
        if root == PROGRESS_ROOT:
            continue  # stays in this account and is exported from it
        if root != ASK_ROOT:
            found.append(_service(LOG_ACCOUNT, subject))
        elif rest == [">"]:
            found.extend(_service(part, f"{ASK_ROOT}.{part}.>") for part in SERVICES)
        else:
            found.append(_service(rest[0], subject))
    if f"{PROGRESS_ROOT}.>" in item.subscribe:
        found.extend({"stream": {"account": str(part), "subject": f"{PROGRESS_ROOT}.{part}.>"}} for part in SERVICES)
    return found


def _service(account: str, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = {"service": {"account": str(account), "subject": subject}}
    if (local := _local(subject)) != subject:
        found["to"] = local
    return found


def _local(subject: str) -> str:
    """The subject's name inside an importing account.

    An account without streams of its own answers `$JS.API.STREAM.INFO` and its like
    itself ("JetStream not enabled for account"), so the import goes under another
    name and the account maps the well-known name to it. Clients see no difference.
    """
    if subject.startswith(_ANSWERED_LOCALLY):
        return _RENAMED_ROOT + subject.removeprefix("$JS.API")
    return subject

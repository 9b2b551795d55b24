"""Which pod may speak for which job, from what the API server says of its token and what is on record. Pure.

Called by `workers/admit.py` for everybody who connects to the bus with a pod's token.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.contracts.errors import ContractError
from forebay.contracts.parts import Part, parse_source
from forebay.contracts.permissions import TOKEN_AUDIENCE
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.cluster.objects import owner_uids
from forebay.scheduler_bridge.domain.cluster.view import is_over
from forebay.scheduler_bridge.domain.documents import Job, place

Json = dict[str, Any]
LONGEST_S = 3600
"""After this a connection must show a token again, whatever the token says of itself."""
NOT_SEEN = "it was not seen yet; it is let in when it was"
"""The only refusal that a moment changes."""
_POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Somebody connects: what the server asks about."""

    server: str
    connection: str
    """The key that the server made for this one connection."""
    project: str
    job: str
    """Both as the client claims in its name; empty when it claims to be something else."""
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProof:
    """Which pod the API server says that a token belongs to."""

    namespace: str
    uid: str


def asked_of(data: bytes) -> Asked:
    """Read the server's request. Raises `ValueError` or `KeyError` when it is none."""
    found = _claims(data.decode("ascii"))["nats"]
    options = found["connect_opts"]
    project, job = _claimed(str(options.get("name") or ""))
    return Asked(
        server=str(found["server_id"]["id"]),
        connection=str(found["user_nkey"]),
        project=project,
        job=job,
        token=str(options.get("auth_token") or ""),
    )


def _claimed(name: str) -> tuple[str, str]:
    """`/forebay/agent/arm-lab/pick-7`: project and job."""
    text, _, job = name.rpartition("/")
    try:
        source = parse_source(text)
    except ContractError:
        return "", ""
    return (str(source.project), job) if source.part is Part.AGENT else ("", "")


def review_of(token: str) -> Json:
    """What the API server is asked: whose token it is, and whether it is made out to us."""
    spec = {"token": token, "audiences": [TOKEN_AUDIENCE]}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}


def proof_of(review: Mapping[str, Any]) -> PodProof | None:
    """The pod that its answer names; None when the token is not good, not for us, or no pod's."""
    status = review.get("status") or {}
    if not status.get("authenticated") or TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    root, _, rest = str(user.get("username", "")).partition("system:serviceaccount:")
    uids: Sequence[str] = (user.get("extra") or {}).get(_POD_UID) or ()
    if root or not rest or len(uids) != 1:
        return None
    return PodProof(namespace=rest.partition(":")[0], uid=str(uids[0]))


def refusal_of(state: State, asked: Asked, pod: PodProof, namespace: str | None) -> str | None:
    """Why this pod may not speak for that job; None: it may. `namespace` is where the project's jobs run."""
    job = state.get(Job, place(asked.project, asked.job))
    carrier = state.get(Carrier, place(asked.project, asked.job))
    if job is None:
        return "there is no such job"
    if job.terminal is not None:
        return "the job is over"
    seen = state.get(ClusterObject, f"{asked.project}/{asked.job}/{pod.uid}")
    if seen is None or carrier is None or carrier.uid is None:
        return NOT_SEEN
    if pod.namespace != namespace or seen.type != "Pod" or carrier.uid not in owner_uids(seen.body):
        return "it is no pod of that job's Job object"
    return "it has ended" if is_over(seen) else None


def ends_at(token: str, now: int) -> int:
    """When the connection must be made anew: with the token, and within the hour."""
    try:
        return min(now + LONGEST_S, int(_claims(token).get("exp", now + LONGEST_S)))
    except (ValueError, TypeError):
        return now + LONGEST_S


def _claims(token: str) -> Json:
    """The middle part of a JWT. Nothing is believed for it alone: the API server or the bus vouches for it."""
    parts = token.split(".")
    if len(parts) != 3:
        msg = "this is no JWT"
        raise ValueError(msg)
    found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    if not isinstance(found, dict):
        msg = "this is no JWT"
        raise ValueError(msg)  # noqa: TRY004 whatever is wrong with it, it is no JWT
    return found

"""Who may say, ask, hear and answer what: derived from the table of events, never written by hand.

`deploy/` turns it into server configuration, `make generate` into `permissions.json`.

Each identity lives in a NATS account of its own and reaches the log only through
these subjects. The account matters: NATS checks the subject of a message but not
the reply subject in it, so inside one account a reader could ask the server to
send a stored message, or an acknowledgement, to somebody else's event subject,
and the log would take it. Between accounts a reply cannot leave the account that
asked (tried in tests/integration/test_permissions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.contracts.catalogue import EventSpec, events_of
from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_id
from forebay.contracts.parts import PROJECT_PARTS, SERVICES, Part, Source
from forebay.contracts.subjects import ASK_ROOT, DEAD_ROOT, DEAD_STREAM, EVENT_ROOT, PROGRESS_ROOT, STREAM

LOG_ACCOUNT = "log"
"""The account that owns the streams; only `admin` lives in it."""
PROJECT_PLACEHOLDER = "<project>"
JOB_PLACEHOLDER = "<job>"
_API = "$JS.API"
RESUME_POINT = "resume-point"
ATTEMPT_OF = "attempt-of"
"""With it, the two questions that an agent asks: where to continue, and which attempt its pod is."""
JOB_KEY = "job"
"""Events under this key can be allowed for one job."""
WHO_IS_IT = "$SYS.REQ.USER.AUTH"
"""Where the server asks about whoever connects with a pod's token instead of an nkey; the bridge answers."""
ADMITS = Part.BRIDGE
BUS_HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
"""Where the server says whether its streams can be written: one that met a full disk refuses until it is restarted."""
BUS_PROBE = "probe.bus"
"""A message here is stored and acknowledged like an event, in a stream that keeps only the last one."""
TOKEN_AUDIENCE = "forebay-bus"  # noqa: S105 whom a pod's token is made out to


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Everything one identity may do on the bus."""

    source: Source
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    """Besides this, an identity hears only its own inbox."""
    answers: tuple[str, ...] = ()
    """Questions it answers; it may reply to whoever asked them, and to nobody else."""
    job: str | None = None
    """The one job that an attempt may speak for; None: this is no attempt."""

    @property
    def identity(self) -> str:
        """The name of the account; attempts of a project share one."""
        return attempts_account(str(self.source.project)) if self.job else identity_of(self.source)

    @property
    def inbox(self) -> str:
        return inbox_prefix(self.source, self.job)


def identity_of(source: Source) -> str:
    """`ingest`, `collector.arm-lab`: the name of the key file and of the account."""
    return f"{source.part}.{source.project}" if source.project else str(source.part)


def inbox_prefix(source: Source, job: str | None = None) -> str:
    """Where replies to this identity arrive; nobody else may listen there."""
    return "_INBOX_" + identity_of(source).replace(".", "_") + (f"_{job}" if job else "")


def attempts_account(project: str) -> str:
    """The account in which every attempt of a project lives, each with permissions of its own."""
    return f"attempts.{project}"


def permission_of(source: Source) -> Permission:
    """The permissions of one identity."""
    part = source.part
    if part in SERVICES:
        return _service(source)
    if part in PROJECT_PARTS:
        return _project_part(source)
    if part is Part.OPERATOR:
        return _permission(source, publish=(*_READ_LOG, *_READ_DEAD, f"{ASK_ROOT}.>"), hears=(f"{PROGRESS_ROOT}.>",))
    return _permission(source, publish=(f"{_API}.>", BUS_HEALTH, BUS_PROBE))


def permission_of_attempt(project: str, job: str) -> Permission:
    """What a pod may do: speak, read back and ask as the agent of one job. Raises `InvalidNameError`."""
    if "-" not in check_id(job):
        msg = f"{job!r} is no job: a job has a '-' in its id, and events of older versions stand under keys without"
        raise InvalidNameError(msg)
    return attempts_of(check_id(project), job)


def attempts_of(project: str, job: str = "*") -> Permission:
    """The same for every job: what the account of a project's attempts imports."""
    source = Source(Part.AGENT, project)
    own = tuple(
        f"{EVENT_ROOT}.{project}.{spec.entity}.{job}.{spec.token}"
        for spec in events_of(Part.AGENT)
        if spec.key == JOB_KEY
    )
    back = tuple(f"{_API}.DIRECT.GET.{STREAM}.{subject}" for subject in own)
    ask = tuple(f"{ASK_ROOT}.{part}.{project}.{question}.{job}" for part, question in _AGENT_ASKS)
    publish = (*own, *back, *ask)
    return Permission(source=source, publish=publish, subscribe=(f"{inbox_prefix(source, job)}.>",), job=job)


def permissions(projects: tuple[str, ...]) -> tuple[Permission, ...]:
    """The permissions of every identity of an installation with these projects."""
    plain = [Source(part) for part in Part if part not in PROJECT_PARTS]
    bound = [Source(part, project) for project in projects for part in PROJECT_PARTS]
    return tuple(permission_of(source) for source in (*plain, *bound))


_AGENT_ASKS = ((Part.REGISTRY, RESUME_POINT), (Part.BRIDGE, ATTEMPT_OF))
_READ_LOG = (
    f"{_API}.DIRECT.GET.{STREAM}",
    f"{_API}.DIRECT.GET.{STREAM}.>",
    f"{_API}.STREAM.INFO.{STREAM}",
    f"{_API}.STREAM.MSG.GET.{STREAM}",
)
_READ_DEAD = (
    f"{_API}.DIRECT.GET.{DEAD_STREAM}",
    f"{_API}.DIRECT.GET.{DEAD_STREAM}.>",
    f"{_API}.STREAM.INFO.{DEAD_STREAM}",
    f"{_API}.STREAM.MSG.GET.{DEAD_STREAM}",
    *(f"{_API}.CONSUMER.INFO.{STREAM}.{part}" for part in SERVICES),
)


def _service(source: Source) -> Permission:
    name = str(source.part)
    publish = (
        *(_event_subject(spec, source, "*") for spec in events_of(source.part)),
        f"{_API}.CONSUMER.MSG.NEXT.{STREAM}.{name}",
        f"{_API}.CONSUMER.INFO.{STREAM}.{name}",
        f"$JS.ACK.{STREAM}.{name}.>",
        *_READ_LOG,
        f"{DEAD_ROOT}.{name}.>",
        f"{PROGRESS_ROOT}.{name}.>",
    )
    hears = (WHO_IS_IT,) if source.part is ADMITS else ()
    return _permission(source, publish=publish, hears=hears, answers=(f"{ASK_ROOT}.{name}.>",))


def _project_part(source: Source) -> Permission:
    """A part that belongs to one project reads back only the last message of its own subjects.

    That is enough to see whether a publish answered "duplicate" was really its own
    message. Reading by sequence, or any consumer, would show it other projects.
    """
    project = source.project or PROJECT_PLACEHOLDER
    own = tuple(_event_subject(spec, source, project) for spec in events_of(source.part))
    back = tuple(f"{_API}.DIRECT.GET.{STREAM}.{subject}" for subject in own)
    asked = _AGENT_ASKS if source.part is Part.AGENT else ()
    ask = tuple(f"{ASK_ROOT}.{part}.{project}.{question}" for part, question in asked)
    return _permission(source, publish=(*own, *back, *ask))


def _permission(
    source: Source, *, publish: tuple[str, ...], hears: tuple[str, ...] = (), answers: tuple[str, ...] = ()
) -> Permission:
    subscribe = (*hears, *answers, f"{inbox_prefix(source)}.>")
    return Permission(source=source, publish=publish, subscribe=subscribe, answers=answers)


def _event_subject(spec: EventSpec, source: Source, project: str) -> str:
    """Where this identity may publish the event; an event of many owners only under the owner's own key."""
    key = str(source.part) if len(spec.owners) > 1 else "*"
    return f"{EVENT_ROOT}.{project}.{spec.entity}.{key}.{spec.token}"

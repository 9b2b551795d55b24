"""Mounts as robot labs write them: `source(type):dir[:ro]`, comma separated, parsed with positions.

Owns the grammar only: what a project may mount, and for whom, is judged by
`mount_rules.py`. Nothing is ever dropped: what cannot be read is a problem with its
place in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from forebay.contracts.quantities import QuantityError, parse_bytes

MAX_TEXT = 8192
MAX_MOUNTS = 64
_MAX_PATH = 1024
_MAX_SUBDOMAIN = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_PATH_PART = re.compile(r"[^\x00-\x1f\x7f:,()\\]+")
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)
_CLOSED = (
    "/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt/forebay", "/forebay",
)  # fmt: skip
"""Folders of the system (in /run lie the keys of accounts), and of Forebay's own parts: mounts are seen by them too."""
_OURS = ("/forebay", "/opt/forebay")
SHM = "/dev/shm"  # noqa: S108 the name of the mount, nothing is written here


class MountType(StrEnum):
    """What a source is."""

    PVC = "pvc"
    """A claim; each user sees a folder of their own."""
    PVC_SHARE = "pvc-share"
    STORAGE = "storage"
    NFS = "nfs"
    HOSTPATH = "hostpath"
    CONFIGMAP = "configmap"
    SECRET = "secret"  # noqa: S105 a type of mount
    MEMORY = "memory"


CLAIMS = frozenset({MountType.PVC, MountType.PVC_SHARE, MountType.STORAGE})
_ALWAYS_READ_ONLY = frozenset({MountType.CONFIGMAP, MountType.SECRET})
_EXAMPLES = {
    MountType.PVC: "team(pvc):/work",
    MountType.PVC_SHARE: "models(pvc-share):/models:ro",
    MountType.STORAGE: "scratch(storage):/scratch",
    MountType.NFS: "10.0.0.5/exports/lab(nfs):/lab",
    MountType.HOSTPATH: "/mnt/lab(hostpath):/lab:ro",
    MountType.CONFIGMAP: "train-config(configmap):/config",
    MountType.SECRET: "wandb(secret):/secrets/wandb",
    MountType.MEMORY: "4G(memory):/dev/shm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Characters `[start, stop)` of the mounts text."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MountProblem:
    """What is wrong, and where in the text; None: with a mount that the project adds."""

    span: Span | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One entry of the text."""

    type: MountType
    source: str
    """Name of the claim, ConfigMap or Secret; `host/path`; a path of the node; an amount of memory."""
    directory: str
    """Normalised: absolute, no '.', no '..', no '/' at its end."""
    read_only: bool
    span: Span
    source_span: Span
    directory_span: Span

    @property
    def nfs_server(self) -> str:
        return self.source.partition("/")[0].strip("[]")

    @property
    def nfs_path(self) -> str:
        return "/" + self.source.partition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Every entry that could be read, and every problem."""

    mounts: tuple[Mount, ...]
    problems: tuple[MountProblem, ...]


class _Wrong(Exception):  # noqa: N818 a way out of the scanner, never seen outside
    def __init__(self, start: int, stop: int, message: str) -> None:
        super().__init__(message)
        self.problem = MountProblem(span=Span(start=start, stop=max(stop, start + 1)), message=message)


def parse_mounts(text: str) -> Parsed:
    """Read the whole text; one entry that is wrong hides no other."""
    if len(text) > MAX_TEXT:
        span = Span(start=MAX_TEXT, stop=len(text))
        message = f"{len(text)} characters; at most {MAX_TEXT}"
        return Parsed(mounts=(), problems=(MountProblem(span=span, message=message),))
    mounts: list[Mount] = []
    problems: list[MountProblem] = []
    for start, stop in _entries(text):
        try:
            mounts.append(_entry(text, start, stop))
        except _Wrong as wrong:
            problems.append(wrong.problem)
    if len(mounts) > MAX_MOUNTS:
        message = f"{len(mounts)} mounts; at most {MAX_MOUNTS}"
        problems.append(MountProblem(span=mounts[MAX_MOUNTS].span, message=message))
    return Parsed(mounts=tuple(mounts), problems=tuple(problems))


def point_at(text: str, problem: MountProblem) -> str:
    """Two lines for people: the text (a part of it, when it is long) and a caret below the place."""
    if problem.span is None:
        return ""
    shown = "".join(char if char.isprintable() else " " for char in text)
    start = min(problem.span.start, len(shown))
    first = max(0, start - 40)
    part = shown[first : start + 60]
    left = "…" if first else ""
    right = "…" if first + len(part) < len(shown) else ""
    width = max(1, min(problem.span.stop, first + len(part)) - start)
    return f"{left}{part}{right}\n{' ' * (len(left) + start - first)}{'^' * width}"


def normal_path(path: str) -> str | None:
    """The path without '//', '.' and a '/' at its end; None when it is not absolute or climbs with '..'."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return None if not path.startswith("/") or ".." in parts else "/" + "/".join(parts)


def is_below(path: str, folder: str) -> bool:
    """Whether a normalised path is the folder or lies in it."""
    return folder in {path, "/"} or path.startswith(folder + "/")


def _entries(text: str) -> Iterator[tuple[int, int]]:
    """Where each entry lies, without the blanks around it. An empty text has none; one comma at the end is fine."""
    if not text.strip():
        return
    start = 0
    pieces = text.split(",")
    if len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    for piece in pieces:
        left = start + len(piece) - len(piece.lstrip())
        yield left, max(left, start + len(piece.rstrip()))
        start += len(piece) + 1


def _entry(text: str, start: int, stop: int) -> Mount:
    entry = text[start:stop]
    if not entry:
        raise _Wrong(start - 1 if start else 0, start, "nothing stands between two commas; remove one")
    opening, closing = entry.find("("), entry.find(")")
    if opening < 0:
        raise _Wrong(start, stop, f"the type is missing; write source(type):dir, for example {_like(entry)}")
    if closing < opening:
        raise _Wrong(start + opening, stop, "the '(' is never closed; write source(type):dir")
    kind = _type(entry[opening + 1 : closing], start + opening + 1, start + closing)
    source = Span(start=start, stop=start + opening)
    _check_source(kind, entry[:opening], source)
    rest = start + closing + 1
    if rest >= stop or text[rest] != ":":
        message = f"':dir' is missing after the type; for example {_EXAMPLES[kind]}"
        raise _Wrong(rest, stop, message)
    path, colon, option = text[rest + 1 : stop].partition(":")
    directory = Span(start=rest + 1, stop=rest + 1 + len(path))
    return Mount(
        type=kind,
        source=normal_path(entry[:opening]) or "" if kind is MountType.HOSTPATH else entry[:opening],
        directory=_directory(kind, path, directory),
        read_only=_read_only(kind, option if colon else None, directory.stop, stop),
        span=Span(start=start, stop=stop),
        source_span=source,
        directory_span=directory,
    )


def _like(entry: str) -> str:
    name = entry.partition(":")[0].strip()
    return f"{name}(pvc):/work" if _SUBDOMAIN.fullmatch(name) and len(name) < 40 else _EXAMPLES[MountType.PVC]


def _type(word: str, start: int, stop: int) -> MountType:
    try:
        return MountType(word)
    except ValueError:
        known = ", ".join(MountType)
        said = f"unknown type {word!r}" if word else "the type is empty"
        raise _Wrong(start, stop, f"{said}; known are {known}") from None


def _check_source(kind: MountType, source: str, span: Span) -> None:
    if not source:
        raise _Wrong(span.start, span.stop, f"nothing stands before the type; for example {_EXAMPLES[kind]}")
    _SOURCES[kind](kind, source, span)


def _named(kind: MountType, source: str, span: Span) -> None:
    if len(source) > _MAX_SUBDOMAIN:
        message = f"the name has {len(source)} characters; Kubernetes allows {_MAX_SUBDOMAIN}"
        raise _Wrong(span.start + _MAX_SUBDOMAIN, span.stop, message)
    if not _SUBDOMAIN.fullmatch(source):
        at = next((i for i, char in enumerate(source) if not re.match(r"[-.a-z0-9]", char, re.ASCII)), 0)
        message = f"{source!r} is no name of a {kind}: use lower-case letters, digits, '-' and '.'"
        raise _Wrong(span.start + at, span.start + at + 1, message)


def _memory(kind: MountType, source: str, span: Span) -> None:
    if source.isdigit():
        raise _Wrong(span.start, span.stop, f"{source} of what? Write the unit: {source}Gi({kind})")
    try:
        size = parse_bytes(source)
    except QuantityError as error:
        raise _Wrong(span.start, span.stop, str(error)) from None
    if size < 1 << 20 or source != source.strip():
        raise _Wrong(span.start, span.stop, f"{source!r} is less than 1Mi; write for example 4Gi")


def _host_path(kind: MountType, source: str, span: Span) -> None:
    _path(source, span, f"a {kind} source")


def _nfs(kind: MountType, source: str, span: Span) -> None:
    host, slash, path = source.partition("/")
    if not _HOST.fullmatch(host) or len(host) > _MAX_SUBDOMAIN:
        message = f"{host!r} is no host; for example {_EXAMPLES[kind]}"
        raise _Wrong(span.start, span.start + len(host), message)
    if not slash or not path:
        raise _Wrong(span.stop, span.stop, f"the exported path is missing; for example {_EXAMPLES[kind]}")
    _path("/" + path, Span(start=span.start + len(host), stop=span.stop), "an exported path")


_SOURCES: dict[MountType, Callable[[MountType, str, Span], None]] = {
    MountType.PVC: _named,
    MountType.PVC_SHARE: _named,
    MountType.STORAGE: _named,
    MountType.CONFIGMAP: _named,
    MountType.SECRET: _named,
    MountType.MEMORY: _memory,
    MountType.HOSTPATH: _host_path,
    MountType.NFS: _nfs,
}


def _directory(kind: MountType, path: str, span: Span) -> str:
    normal = _path(path, span, "the target")
    if normal == "/":
        raise _Wrong(span.start, span.stop, "a mount at '/' hides the image; name a folder")
    if normal == SHM:
        if kind is not MountType.MEMORY:
            raise _Wrong(span.start, span.stop, f"only memory belongs at {SHM}; for example 4G(memory):{SHM}")
        return normal
    for folder in _CLOSED:
        if is_below(normal, folder):
            owner = "Forebay's own folder" if folder in _OURS else "a folder of the system"
            raise _Wrong(span.start, span.stop, f"{folder} is {owner}; choose another target")
        if is_below(folder, normal):
            raise _Wrong(span.start, span.stop, f"a mount at {normal} hides {folder}; name a folder of your own")
    return normal


def _path(path: str, span: Span, what: str) -> str:
    """The normalised path; the position of what is wrong is that of the part that is wrong."""
    if not path.startswith("/"):
        said = "is empty" if not path else f"{path!r} is not absolute"
        raise _Wrong(span.start, span.stop, f"{what} {said}; write it from '/' on")
    if len(path) > _MAX_PATH:
        raise _Wrong(span.start + _MAX_PATH, span.stop, f"{what} has {len(path)} characters; at most {_MAX_PATH}")
    at = span.start
    for part in path.split("/"):
        if part == "..":
            raise _Wrong(at, at + 2, f"{what} climbs with '..'; write the path that is meant")
        if part and not _PATH_PART.fullmatch(part):
            raise _Wrong(at, at + len(part), f"{what} holds {part!r}: no control character and none of : , ( ) \\")
        if len(part.encode("utf-8", "replace")) > 255:
            raise _Wrong(at, at + len(part), f"{what} has a part of {len(part)} characters; a file system takes 255")
        at += len(part) + 1
    return normal_path(path) or "/"


def _read_only(kind: MountType, option: str | None, start: int, stop: int) -> bool:
    if option is None:
        return kind in _ALWAYS_READ_ONLY
    if option not in {"ro", "rw"}:
        said = f"unknown option {option!r}" if option else "nothing stands after ':'"
        raise _Wrong(start + 1, stop, f"{said}; known is ':ro'")
    if kind is MountType.MEMORY and option == "ro":
        raise _Wrong(start + 1, stop, "memory that nobody may write is of no use; leave ':ro' out")
    if kind in _ALWAYS_READ_ONLY and option == "rw":
        raise _Wrong(start + 1, stop, f"a {kind} is always read-only; leave ':rw' out")
    return option == "ro" or kind in _ALWAYS_READ_ONLY

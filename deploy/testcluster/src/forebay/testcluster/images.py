"""Container images from nothing but files of this machine, as archives that containerd imports.

No registry is asked: an image is a tar of its files and two JSON files that describe it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from forebay.testcluster.errors import ClusterError

PAUSE = "forebay.test/pause:1"
BUSYBOX = "forebay.test/busybox:1"
KUEUE = "forebay.test/kueue:1"

_GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "var")


def _folder(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return entry


def _layer(to: Path, files: Mapping[str, Path | str], links: Mapping[str, str]) -> None:
    """A tar with `files` (a path to copy from, or the text itself) and `links` (path in the image → target)."""
    with tarfile.open(to, "w") as tar:
        for name in _FOLDERS:
            tar.addfile(_folder(name, 0o1777 if name == "tmp" else 0o755))
        for name, content in files.items():
            if isinstance(content, Path):
                tar.add(content.resolve(), arcname=name.lstrip("/"))
            else:
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = len(content.encode()), 0o755 if content.startswith("#!") else 0o644
                tar.addfile(entry, io.BytesIO(content.encode()))
        for name, target in links.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)


def write(
    to: Path,
    name: str,
    files: Mapping[str, Path | str],
    *,
    links: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] = (),
    user: str = "",
    environment: Mapping[str, str] | None = None,
) -> Path:
    """The archive of an image called `name`, in the form of `docker save`.

    A file or a whole folder is copied to each key of `files`; a text becomes a file (executable when it starts with #!).
    """
    layer = to.with_suffix(".layer")
    _layer(layer, files, links or {})
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})}
    described = {
        "architecture": _GOARCH.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint) or None,
            "Env": [f"{key}={value}" for key, value in variables.items()],
            "User": user,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config = json.dumps(described, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(to, "w") as tar:
        for member, text in ((config_name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(member)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        tar.add(layer, arcname=f"{digest}/layer.tar")
    layer.unlink()
    return to


def busybox_files() -> dict[str, Path | str]:
    """What every image with a shell has."""
    program = shutil.which("busybox")
    if program is None:
        msg = "busybox is not installed"
        raise ClusterError(msg, "install the package busybox-static")
    return {
        "/bin/busybox": Path(program),
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    }


def applets() -> dict[str, str]:
    """A link for each command that this machine's busybox has."""
    listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    return {f"/bin/{name}": "busybox" for name in listed.split() if name != "busybox"}


def standard(folder: Path, kueue: Path) -> list[Path]:
    """The images that a cluster cannot do without."""
    shell = busybox_files()
    pause = ("/bin/busybox", "sleep", "2147483647")
    return [
        write(folder / "pause.tar", PAUSE, {"/bin/busybox": shell["/bin/busybox"]}, entrypoint=pause),
        write(folder / "busybox.tar", BUSYBOX, shell, links=applets()),
        write(folder / "kueue.tar", KUEUE, {"/manager": kueue}, entrypoint=("/manager",), user="65532"),
    ]

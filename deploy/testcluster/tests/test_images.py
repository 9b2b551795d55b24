"""Images made of files: what containerd checks when it imports them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from forebay.testcluster import images


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry)) is not None}


def test_an_archive_describes_its_layer_by_content(tmp_path: Path) -> None:
    """The manifest names config and layer, and the config has the digest of the layer as it is."""
    (tmp_path / "program").write_bytes(b"\x7fELF")
    archive = images.write(
        tmp_path / "a.tar",
        "forebay.test/a:1",
        {"/bin/program": tmp_path / "program", "/etc/text": "hello\n"},
        links={"/bin/other": "program"},
        entrypoint=("/bin/program",),
        user="65532",
    )
    found = members(archive)
    (described,) = json.loads(found["manifest.json"])
    assert described["RepoTags"] == ["forebay.test/a:1"]
    (layer,) = described["Layers"]
    config = json.loads(found[described["Config"]])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(found[layer]).hexdigest()}"]
    assert (config["config"]["Entrypoint"], config["config"]["User"]) == (["/bin/program"], "65532")


def test_a_layer_holds_files_texts_scripts_and_links(tmp_path: Path) -> None:
    """A folder is copied whole, a script can be executed, a link points where it was told."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "one.py").write_text("1\n", encoding="utf-8")
    files: dict[str, Path | str] = {"/opt/library": folder, "/bin/run": "#!/bin/sh\n"}
    archive = images.write(tmp_path / "a.tar", "forebay.test/a:1", files, links={"/bin/r": "run"})
    layer = next(name for name in members(archive) if name.endswith("layer.tar"))
    with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile(layer)) as tar:
        assert tar.getmember("bin/run").mode == 0o755
        assert tar.getmember("bin/r").linkname == "run"
        assert tar.getmember("opt/library/one.py").size == 2
        assert tar.getmember("tmp").mode == 0o1777

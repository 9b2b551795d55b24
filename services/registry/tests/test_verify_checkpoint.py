"""Checkpoint files: whole or not by header arithmetic, complete or not by layout, and nothing hostile gets through."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forebay.contracts.v1.models import CheckpointFile, CheckpointVerified, CheckpointWritten, checkpoint_digest
from forebay.registry.adapters.file_artefacts import FileArtefacts
from forebay.registry.domain.safetensors_header import MAX_HEADER_BYTES, HeaderError, header_length, tensors_of
from forebay.registry.workers.save_files import tensors_in
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier, Verdict, verify
from forebay.runtime.documents import D
from forebay.runtime.machine import Emit
from forebay.runtime.state import State
from forebay.runtime.work import T, WorkItem
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.run_here import RunHere


def tensor_file(tensors: dict[str, list[int]], *, dtype: str = "F32") -> bytes:
    """A whole safetensors file of zeros."""
    entries: dict[str, Any] = {}
    end = 0
    for name, shape in tensors.items():
        size = 4
        for dimension in shape:
            size *= dimension
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(end)


WHOLE = tensor_file({"w": [4, 2], "b": [2]})


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return folder


def own(step: int = 500, **state: Any) -> dict[str, bytes]:
    said = {"step": step, "scheduler": {"last": step}, "rng": [1, 2], **state}
    return {
        "model.safetensors": WHOLE,
        "optimizer.safetensors": WHOLE,
        "state.json": json.dumps({name: value for name, value in said.items() if value is not None}).encode(),
    }


def lerobot(step: int = 500) -> dict[str, bytes]:
    return {
        "pretrained_model/config.json": b"{}",
        "pretrained_model/model.safetensors": WHOLE,
        "training_state/optimizer_state.safetensors": WHOLE,
        "training_state/optimizer_param_groups.json": b"[]",
        "training_state/rng_state.safetensors": WHOLE,
        "training_state/scheduler_state.json": b"{}",
        "training_state/training_step.json": json.dumps({"step": step}).encode(),
    }


def event_for(folder: Path, step: int = 500, *, uri: str | None = None, **change: Any) -> CheckpointWritten:
    """What the agent says about a folder as it is now."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = tuple(
        CheckpointFile(
            path=path.relative_to(folder).as_posix(),
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            bytes=path.stat().st_size,
        )
        for path in paths
    )
    values: dict[str, Any] = {"files": files, "digest": checkpoint_digest(files)}
    values |= {"checkpoint": "ck-1", "job": "reach-1", "attempt": 1}
    return CheckpointWritten(step=step, uri=uri or str(folder), **(values | change))


def judged(folder: Path, step: int = 500) -> Verdict:
    return verify(event_for(folder, step), [folder.parent])


class TestLayouts:
    @pytest.mark.parametrize("layout", [own, lerobot])
    def test_complete(self, tmp_path: Path, layout: Callable[[], dict[str, bytes]]) -> None:
        """Weights, optimizer, scheduler, random state and step: complete, in both layouts."""
        assert judged(put(tmp_path / "000500", layout())) == Verdict("complete")

    @pytest.mark.parametrize(
        ("without", "status"),
        [
            (["training_state/scheduler_state.json"], "inexact"),
            (["training_state/rng_state.safetensors"], "inexact"),
            (["training_state/training_step.json"], "incomplete"),
            (["pretrained_model/model.safetensors"], "incomplete"),
            (["training_state/optimizer_state.safetensors"], "weights-only"),
            ([name for name in lerobot() if name.startswith("training_state")], "weights-only"),
        ],
    )
    def test_lerobot_parts(self, tmp_path: Path, without: list[str], status: str) -> None:
        """Each missing part has its own status, and is named."""
        files = {name: body for name, body in lerobot().items() if name not in without}
        verdict = judged(put(tmp_path / "000500", files))
        assert verdict.status == status
        assert verdict.findings

    @pytest.mark.parametrize(
        ("state", "status"),
        [
            ({"scheduler": None}, "inexact"),
            ({"rng": None}, "inexact"),
            ({"step": None}, "incomplete"),
            ({"step": True}, "incomplete"),
            ({"step": 499}, "corrupt"),
        ],
    )
    def test_own_state(self, tmp_path: Path, state: dict[str, Any], status: str) -> None:
        """What state.json lacks or contradicts decides the status."""
        assert judged(put(tmp_path / "000500", own(**state))).status == status

    def test_shards(self, tmp_path: Path) -> None:
        """Shards count by their index: every tensor must lie where the index says."""
        files = own()
        del files["model.safetensors"]
        files["a.safetensors"], files["b.safetensors"] = tensor_file({"x": [1]}), tensor_file({"y": [1]})
        index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
        files["model.safetensors.index.json"] = json.dumps(index).encode()
        assert judged(put(tmp_path / "good", files)).status == "complete"
        index["weight_map"]["z"] = "b.safetensors"
        index["weight_map"]["q"] = "c.safetensors"
        files["model.safetensors.index.json"] = json.dumps(index).encode()
        verdict = judged(put(tmp_path / "bad", files))
        assert verdict.status == "corrupt"
        assert len(verdict.findings) == 2

    @pytest.mark.parametrize(
        "marker",
        [".incomplete", "x.tmp", "model.part", "a_tmp", ".inprogress", "training_state/.tmp-1", "tmp-1/w", "x~"],
    )
    def test_in_progress_markers(self, tmp_path: Path, marker: str) -> None:
        """CR-08: all files there, but marked in progress: not complete."""
        folder = put(tmp_path / "001500", lerobot(1500))
        event = event_for(folder, 1500)
        put(folder, {marker: b""})
        verdict = verify(event, [tmp_path])
        assert verdict.status == "incomplete"
        assert "marked in progress" in verdict.findings[0]

    @pytest.mark.parametrize(
        "name", ["checkpoint-300.tmp", "tmp-checkpoint-300", "300.orbax-checkpoint-tmp-17", "300_writing"]
    )
    def test_folder_in_progress(self, tmp_path: Path, name: str) -> None:
        """CR-03: checkpoint-300.tmp is not a checkpoint, nor what other writers call theirs before they rename it."""
        assert judged(put(tmp_path / name, lerobot())).status == "incomplete"

    @pytest.mark.parametrize("name", ["temperature-300", "checkpoint-300", "apart-300", "step_300", "tmpo300"])
    def test_folder_of_a_like_name(self, tmp_path: Path, name: str) -> None:
        """A name that only looks like a mark is none."""
        assert judged(put(tmp_path / name, lerobot())).status == "complete"


class TestFiles:
    @pytest.mark.parametrize(
        ("body", "says"),
        [
            (WHOLE[: int(len(WHOLE) * 0.6)], "truncated"),
            (WHOLE + bytes(100), "100 bytes more than the header covers"),
            (b"", "empty file"),
            (b"\x01\x02", "too few"),
        ],
    )
    def test_not_whole(self, tmp_path: Path, body: bytes, says: str) -> None:
        """CR-02: truncated, padded, empty: corrupt, with the numbers, even when the digest fits."""
        verdict = judged(put(tmp_path / "001000", lerobot() | {"pretrained_model/model.safetensors": body}))
        assert verdict.status == "corrupt"
        assert says in verdict.findings[0]

    def test_changed_after_the_event(self, tmp_path: Path) -> None:
        """A file whose bytes are not those of the event is corrupt, by size or by digest."""
        folder = put(tmp_path / "000500", own())
        event = event_for(folder)
        put(folder, {"model.safetensors": WHOLE[:-1] + b"\x01"})
        assert verify(event, [tmp_path]).status == "corrupt"
        put(folder, {"model.safetensors": WHOLE + b"\x01"})
        assert f"{len(WHOLE) + 1} bytes, {len(WHOLE)} were recorded" in verify(event, [tmp_path]).findings[0]

    def test_gone(self, tmp_path: Path) -> None:
        """A folder, or all its files, that are not there: missing, not corrupt."""
        folder = put(tmp_path / "000500", own())
        event = event_for(folder)
        for path in folder.iterdir():
            path.unlink()
        assert verify(event, [tmp_path]).status == "missing"
        folder.rmdir()
        assert verify(event, [tmp_path]).status == "missing"

    def test_event_that_lies_about_itself(self, tmp_path: Path) -> None:
        """A digest that is not the digest of the files listed is refused."""
        folder = put(tmp_path / "000500", own())
        assert verify(event_for(folder, digest="0" * 64), [tmp_path]).status == "corrupt"


class TestHostile:
    def test_outside_its_job(self, tmp_path: Path) -> None:
        """A uri outside the job's folders is not read at all."""
        folder = put(tmp_path / "elsewhere" / "000500", own())
        for uri in (str(folder), f"file://{folder}", f"{tmp_path}/job/../elsewhere/000500", "s3://b/c", "/etc"):
            verdict = verify(event_for(folder, uri=uri), [tmp_path / "job"])
            assert verdict.status == "missing"

    def test_link_out(self, tmp_path: Path) -> None:
        """A link that leaves the checkpoint is not followed."""
        secret = put(tmp_path / "secret", own())
        folder = put(tmp_path / "job" / "000500", own())
        event = event_for(folder)
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").symlink_to(secret / "model.safetensors")
        assert "link out of the checkpoint" in verify(event, [tmp_path / "job"]).findings[0]
        (tmp_path / "job" / "linked").symlink_to(secret)
        linked = event_for(secret, uri=str(tmp_path / "job" / "linked"))
        assert verify(linked, [tmp_path / "job"]).status == "missing"

    def test_links_in_circles(self, tmp_path: Path) -> None:
        """A uri of links that lead to each other is not there, for the check and for the audit."""
        folder = put(tmp_path / "000500", own())
        (tmp_path / "here").symlink_to("there")
        (tmp_path / "there").symlink_to("here")
        event = event_for(folder, uri=str(tmp_path / "here"))
        assert verify(event, [tmp_path]).status == "missing"
        assert not FileArtefacts([str(tmp_path)]).look("lab", "j-1", event.uri, []).seen

    @pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b", "a\\b", ""])
    def test_paths(self, tmp_path: Path, path: str) -> None:
        """File paths that climb out are refused before anything is read."""
        folder = put(tmp_path / "000500", own())
        files = (CheckpointFile(path=path, sha256="0" * 64, bytes=1),)
        assert verify(event_for(folder, files=files), [tmp_path]).status == "corrupt"

    def test_no_plain_file(self, tmp_path: Path) -> None:
        """A pipe would block for ever; it is refused."""
        folder = put(tmp_path / "000500", own())
        event = event_for(folder)
        (folder / "model.safetensors").unlink()
        os.mkfifo(folder / "model.safetensors")
        assert "model.safetensors cannot be used: it is a FIFO" in verify(event, [tmp_path]).findings[0]

    @pytest.mark.parametrize(
        ("header", "says"),
        [
            (b"[1]", "not a JSON object"),
            (b"{" * 5000, "not JSON"),
            (b"[" * 200_000, "not JSON"),
            (b'{"a": 1}', "not described"),
            (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {}}', "stands twice"),
            (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}', "before it starts"),
            (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, -4]}}', "not two sizes"),
            (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, true]}}', "not two sizes"),
            (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', "needs 8 bytes"),
            (b'{"a": {"dtype": "F32", "shape": [9e9], "data_offsets": [0, 4]}}', "not a list of sizes"),
            (b'{"a": {"dtype": "U8", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}', "not JSON"),
            (b"\xff\xfe", "not JSON"),
        ],
    )
    def test_headers(self, header: bytes, says: str) -> None:
        """A header that lies is named, whatever it contains."""
        with pytest.raises(HeaderError, match=says):
            tensors_of(header, 8 + len(header) + 4)

    def test_overlap_and_hole(self) -> None:
        """Tensors must lie one after the other."""
        for second, says in (((2, 6), "overlap"), ((5, 9), "leave a hole")):
            entries = {
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": list(second)},
            }
            header = json.dumps(entries).encode()
            with pytest.raises(HeaderError, match=says):
                tensors_of(header, 8 + len(header) + second[1])

    def test_huge_header(self) -> None:
        """A header length that would fill the memory is refused before anything is read."""
        for length in (MAX_HEADER_BYTES + 1, (1 << 64) - 1):
            with pytest.raises(HeaderError, match="at most"):
                header_length(struct.pack("<Q", length), 1 << 62)

    @given(st.binary(max_size=400))
    def test_any_bytes(self, body: bytes) -> None:
        """No bytes make the check fail in another way than by saying what is wrong."""
        try:
            length = header_length(body[:8], len(body))
            tensors_of(body[8 : 8 + length], len(body))
        except HeaderError as error:
            assert str(error)  # noqa: PT017 either outcome is fine, another exception is not

    def test_agrees_with_the_library(self, tmp_path: Path) -> None:
        """What the safetensors library writes is whole, and its names are found."""
        save_file({"a": np.zeros((3, 2), "float16"), "s": np.zeros((), "int64")}, tmp_path / "f.safetensors")
        assert tensors_in(tmp_path / "f.safetensors") == {"a", "s"}


class _NoContext(RunHere):
    """The verifier needs nothing from its context."""

    async def emit(self, *emits: Emit) -> None:
        raise AssertionError(emits)

    def progress(self, payload: Mapping[str, Any]) -> None:
        raise AssertionError(payload)

    async def get(self, kind: type[D], key: str) -> D | None:
        raise AssertionError(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        raise AssertionError(question)


class TestWorker:
    async def test_result_is_an_event(self, tmp_path: Path) -> None:
        """The worker answers with CheckpointVerified, the same one every time it is run again."""
        folder = put(tmp_path / "jobs" / "arm-lab" / "reach-1" / "output" / "checkpoints" / "500", own())
        worker = CheckpointVerifier([f"{tmp_path}/jobs/{{project}}/{{job}}"])
        item = WorkItem(
            kind="verify-checkpoint", key="vc-1", project="arm-lab", payload=event_for(folder).to_json(), tries=0
        )
        first = list(await worker(item, _NoContext()))
        second = list(await worker(item, _NoContext()))
        body = first[0].body
        assert isinstance(body, CheckpointVerified)
        assert body.status == "complete"
        assert first[0].event_id == second[0].event_id

    async def test_other_project(self, tmp_path: Path) -> None:
        """The agent of one project cannot have another project's files read."""
        folder = put(tmp_path / "jobs" / "arm-lab" / "reach-1" / "500", own())
        worker = CheckpointVerifier([f"{tmp_path}/jobs/{{project}}/{{job}}"])
        item = WorkItem(
            kind="verify-checkpoint", key="vc-1", project="thief", payload=event_for(folder).to_json(), tries=0
        )
        (emit,) = await worker(item, _NoContext())
        assert isinstance(emit.body, CheckpointVerified)
        assert emit.body.status == "missing"

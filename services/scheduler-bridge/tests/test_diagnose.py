"""`forebay diagnose`: lines and objects in, one verdict each out; what cannot be read is named, the rest is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from forebay.scheduler_bridge.diagnose_command import register
from forebay.scheduler_bridge.diagnose_input import Broken, Given, Line, read_parts
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

LINE = {"where": "containerStatus", "reason": "OOMKilled", "message": "", "exit_code": 137, "source": "somewhere"}
POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "lab"},
    "spec": {"containers": []},
    "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
}


def run(*arguments: str, given: bytes | None = None) -> Result:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["diagnose", *arguments], input=given)


def answers(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def as_lines(*values: object) -> bytes:
    return "\n".join(json.dumps(value) for value in values).encode()


def test_lines_come_back_in_order_with_cause_and_next_step() -> None:
    """One JSON object a line, in the order of the input."""
    other = {"where": "event", "reason": "Failed", "message": "Error: ErrImagePull"}
    result = run("-", "--json", given=as_lines(LINE, other))
    found = answers(result)
    assert (result.exit_code, [one["cause"] for one in found], [one["line"] for one in found]) == (
        0,
        ["oom", "image"],
        [1, 2],
    )
    assert {"layer", "sentence", "next_action", "need", "have", "where", "fits", "rule", "evidence", "code"} <= found[
        0
    ].keys()
    assert found[0]["evidence"] == [
        {"source": "somewhere", "where": "containerStatus", "reason": "OOMKilled", "exit_code": 137}
    ]


@pytest.mark.parametrize(
    "form",
    [
        json.dumps({"kind": "List", "items": [POD]}, indent=2),
        json.dumps([POD], indent=1),
        json.dumps(POD),
        json.dumps(POD, indent=2) + "\n" + json.dumps({**POD, "metadata": {"name": "train-1"}}, indent=2),
        json.dumps({"type": "ADDED", "object": POD})
        + "\n"
        + json.dumps({"type": "BOOKMARK", "object": {"kind": "Pod"}}),
        "\ufeff"
        + json.dumps({"kind": "PodList", "items": [{key: value for key, value in POD.items() if key != "kind"}]}),
    ],
    ids=["list", "array", "one", "several", "watch", "typed-list"],
)
def test_objects_in_every_form_of_kubectl(form: str, tmp_path: Path) -> None:
    """Lists, single objects, several one after the other, watches."""
    file = tmp_path / "objects.json"
    file.write_text(form, encoding="utf-8")
    result = run(str(file), "--json", "--at", "2026-03-01T09:00:00")
    assert result.exit_code == 0, result.output
    assert {one["cause"] for one in answers(result)} == {"evicted_disk"}
    assert answers(result)[0]["subject"].startswith("Pod lab/train-0")


def test_broken_lines_are_named_and_the_rest_is_judged() -> None:
    """Each broken line with its number and reason; exit code 1."""
    broken = [
        b"{oops",
        b'{"reason": 5, "message": "x"}',
        b"42",
        b'{"unrelated": 1}',
        b"\xff\xfe",
        b'{"reason": "x", "exit_code": "many"}',
    ]
    result = run("-", "--json", given=b"\n".join([*broken, as_lines(LINE), b"", as_lines(POD)]))
    assert result.exit_code == 1
    assert [one["cause"] for one in answers(result)] == ["oom", "evicted_disk"]
    for number in range(1, len(broken) + 1):
        assert f"line {number}: " in result.stderr
    assert "6 parts of - could not be read; 2 judged" in result.stderr


def test_people_get_the_sentence_the_step_and_the_raw_text() -> None:
    """Control characters of a stranger's message do not reach the terminal; credentials are masked."""
    text = 'MountVolume.SetUp failed for volume "v" : \x1b[2J https://me:hunter2@pool \x07'
    result = run("-", given=as_lines({"where": "event", "reason": "FailedMount", "message": text}))
    assert result.exit_code == 0
    assert "volume_mount" in result.stdout
    assert "do: " in result.stdout
    assert not any(bad in result.stdout for bad in ("\x1b[2J", "\x07", "hunter2"))
    assert "hunter2" not in run("-", "--json", given=as_lines({"reason": "FailedMount", "message": text})).stdout


def test_nothing_to_judge_and_wrong_use(tmp_path: Path) -> None:
    """An empty input is a no with the way to go on; a file that is not there and a time that is none are wrong use."""
    assert run("-", given=b"\n").exit_code == 1
    assert "kubectl get" in run("-", given=b"").stderr
    assert run(str(tmp_path / "gone.json")).exit_code == 2
    assert run("-", "--at", "soon", given=as_lines(LINE)).exit_code == 2


def test_answers_of_the_api_server_are_messages() -> None:
    """A Status, and the bare form with a code."""
    status = {
        "kind": "Status",
        "status": "Failure",
        "reason": "Forbidden",
        "code": 403,
        "message": 'jobs.batch is forbidden: User "u" cannot create resource "jobs"',
    }
    bare = {"code": 409, "reason": "AlreadyExists", "message": 'jobs.batch "train" already exists'}
    found = answers(run("-", "--json", given=as_lines(status, bare)))
    assert sorted((one["cause"], one["code"]) for one in found) == [
        ("other", "NameConflict"),
        ("permission", "PermissionDenied"),
    ]


@given(
    data=st.binary(max_size=200)
    | st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b"\n", b'"a":', b"1", b",", b"{}", b"null"])).map(b"".join)
)
def test_any_bytes_are_read_to_their_end(data: bytes) -> None:
    """No input makes the reader fail or run on for ever."""
    assert all(isinstance(part, (Line, Given, Broken)) for part in read_parts(data))


@pytest.mark.parametrize("indent", [None, 4], ids=["one-line", "as-kubectl-prints"])
@pytest.mark.parametrize("form", ["list", "array"])
def test_of_a_list_that_is_cut_off_what_is_whole_is_judged(indent: int | None, form: str) -> None:
    """One complaint, not one a line; and no verdict on half an object."""
    items = [{**POD, "metadata": {"name": f"train-{number}"}} for number in range(3)]
    text = json.dumps(items if form == "array" else {"apiVersion": "v1", "items": items}, indent=indent)
    cut = text[: text.rindex('"status"')]
    result = run("-", "--json", given=cut.encode())
    assert result.exit_code == 1
    assert [one["subject"] for one in answers(result)] == ["Pod train-0", "Pod train-1"]
    assert result.stderr.count("line ") == 1
    assert "cut off" in result.stderr


def test_a_broken_value_among_good_ones_hides_none() -> None:
    """A brace that nothing closes is one line, and values over several lines keep their numbers."""
    given = b"{\n" + as_lines(LINE) + b"\n" + json.dumps(POD, indent=2).encode() + b"\n{oops\n" + as_lines(LINE)
    result = run("-", "--json", given=given)
    found = answers(result)
    assert [one.get("line", one.get("subject")) for one in found] == [2, given.count(b"\n") + 1, "Pod lab/train-0"]
    assert "line 1: no JSON" in result.stderr
    broken = given[: given.index(b"{oops")].count(b"\n") + 1
    assert f"line {broken}: no JSON" in result.stderr


def test_texts_that_are_no_texts_are_written_all_the_same() -> None:
    """Half a surrogate pair reads back as it came, and what PowerShell writes is read."""
    half = run("-", "--json", given=b'{"where":"event","reason":"FailedMount","message":"half \\ud800 a pair"}')
    assert (half.exit_code, answers(half)[0]["evidence"][0]["message"]) == (0, "half \ud800 a pair")
    wide = run("-", "--json", given=as_lines(LINE).decode().encode("utf-16"))
    assert (wide.exit_code, answers(wide)[0]["cause"]) == (0, "oom")


def test_what_is_no_json_at_all_gets_the_command_that_prints_it() -> None:
    """Text of `kubectl describe` is the usual mistake."""
    result = run("-", given=b"Name: train-0\nEvents: <none>\n")
    assert result.exit_code == 1
    assert "2 parts of - could not be read; 0 judged; JSON is read" in result.stderr
    assert "-o json" in result.stderr


def test_verdicts_on_objects_come_in_the_order_of_the_objects() -> None:
    """Lone pods, and jobs at the place of the first object that belongs to them."""
    job = {"kind": "Job", "metadata": {"name": "pick", "namespace": "lab"}, "spec": {}, "status": {}}
    owner = [{"kind": "Job", "name": "pick", "controller": True}]
    mine = {**POD, "metadata": {"name": "pick-a", "namespace": "lab", "ownerReferences": owner}}
    pods = [{**POD, "metadata": {"name": name, "namespace": "lab"}} for name in ("z", "a")]
    found = answers(run("-", "--json", given=as_lines(pods[0], mine, pods[1], job)))
    assert [one["subject"] for one in found] == ["Pod lab/z", "Job lab/pick", "Pod lab/a"]

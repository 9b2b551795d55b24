"""Names that follow from a folder, and the record in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.testcluster import settings
from forebay.testcluster.errors import ClusterError
from forebay.testcluster.work_folder import Record, WorkFolder


def test_two_folders_share_no_name() -> None:
    """Bridge and control group differ by folder, and a bridge's name is as short as the kernel wants it."""
    one, other = WorkFolder(Path("/tmp/one")), WorkFolder(Path("/tmp/other"))
    assert one.bridge != other.bridge
    assert one.control_group != other.control_group
    assert len(one.bridge) <= 15


def test_a_path_too_long_for_sockets_is_refused_in_words() -> None:
    """The error says how long it may be."""
    with pytest.raises(ClusterError, match="too long") as refused:
        WorkFolder(Path("/tmp") / ("x" * 100)).check()
    assert str(settings.LONGEST_PATH) in refused.value.next_action


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path)
    folder.write(Record(network=3, made_folders=["/var/lib/cni"], ready=True))
    assert folder.record() == Record(network=3, made_folders=["/var/lib/cni"], ready=True)


@pytest.mark.parametrize("content", ["", "{", '{"unknown": 1}', "[]"])
def test_a_damaged_record_is_none(tmp_path: Path, content: str) -> None:
    """`down` goes by the names that follow from the folder, so it needs no record."""
    (tmp_path / "cluster.json").write_text(content, encoding="utf-8")
    assert WorkFolder(tmp_path).record() is None

"""Policies: what a project may say about rules, and that everything else is an error with words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forebay.ingest.adapters.policy_file import project_policy, read_policy
from forebay.ingest.domain.policy import PolicyError, parse_policy
from forebay.ingest.errors import PolicyRefusedError
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, FIRST_DATA, SECOND_VIDEO


def outcome(root: Path, policy: Any) -> tuple[str, list[str]]:
    report = inspect(root, policy=parse_policy(policy)).report
    return report.outcome, [episode.outcome for episode in report.episodes]


def test_a_rule_is_raised_and_lowered(tmp_path: Path) -> None:
    """A warning may become an error, an error of quality a warning."""
    root = lerobot.build(tmp_path)
    lerobot.change_feature(root, CAMERA, info={"video.codec": "av1"})
    assert outcome(root, None)[0] == "accept_with_warning"
    assert outcome(root, {"rules": {"LR-VIDEO-004": "error"}})[0] == "reject"
    lerobot.change_cell(root, FIRST_DATA, 4, "action", [0.0, float("nan"), 0.0])
    assert outcome(root, {"rules": {"LR-SIGNAL-001": "hold"}}) == (
        "hold",
        ["hold", "accept", "accept"],
    )


def test_a_waiver_is_told_with_its_reason(tmp_path: Path) -> None:
    """The finding stays, as something that is only told; for the named episodes alone."""
    root = lerobot.build(tmp_path)
    lerobot.change_column(root, FIRST_DATA, "action", lambda _: [0.0, 0.0, 0.0])
    assert outcome(root, None) == ("hold", ["hold", "hold", "accept"])
    waiver = {"waive": True, "reason": "a rest pose was recorded", "episodes": [1]}
    policy = parse_policy({"rules": {"LR-SIGNAL-005": waiver}})
    report = inspect(root, policy=policy).report
    assert [episode.outcome for episode in report.episodes] == ["hold", "accept", "accept"]
    told = [b for b in report.breaches if b.severity == "info"]
    assert "waived by the policy: a rest pose was recorded" in told[0].message


def test_what_one_bad_episode_means(tmp_path: Path) -> None:
    """`drop` leaves a good part, `reject_dataset` nothing."""
    root = lerobot.build(tmp_path)
    (root / SECOND_VIDEO).write_bytes(b"")
    assert outcome(root, None) == ("reject", ["accept", "accept", "reject"])
    assert outcome(root, {"on_bad_episode": "drop"}) == ("partial", ["accept", "accept", "reject"])
    assert outcome(root, {"on_bad_episode": "reject_dataset"}) == ("reject", ["reject"] * 3)


def test_thresholds(tmp_path: Path) -> None:
    """A video that is two frames short may be a warning, when a project says so."""
    root = lerobot.build(tmp_path)
    lerobot.write_video(root / SECOND_VIDEO, 2)
    assert outcome(root, None)[0] == "reject"
    assert outcome(root, {"limits": {"lenient_frames": 2}})[0] == "accept_with_warning"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"rules": {"LR-VIDEO-04": "error"}}, "did you mean LR-VIDEO-0"),
        ({"rulez": {}}, "did you mean rules?"),
        ({"limits": {"lenient_frame": 2}}, "did you mean lenient_frames"),
        ({"limits": {"lenient_frames": -1}}, "expected a whole number from 0"),
        ({"limits": {"frozen_levels": "many"}}, "expected a number"),
        ({"rules": {"LR-VIDEO-004": "fatal"}}, "expected error, hold, warning, info"),
        ({"rules": {"LR-VIDEO-004": {"waive": True}}}, "needs a reason"),
        ({"rules": {"LR-VIDEO-004": {"wave": True}}}, "did you mean waive?"),
        ({"rules": {"LR-EPISODE-002": "warning"}}, "cannot be lowered or waived"),
        ({"rules": {"LR-VIDEO-004": {"severity": "info", "episodes": ["1"]}}}, "list of whole numbers"),
        ({"on_bad_episode": "ignore"}, "drop or reject_dataset"),
        (["rules"], "expected keys"),
        ({"rules": [], "limits": []}, "limits is"),
    ],
)
def test_what_cannot_be_followed_is_an_error(document: Any, says: str) -> None:
    """Unknown names come with close ones."""
    with pytest.raises(PolicyError, match=says):
        parse_policy(document)


def test_policies_on_disk(tmp_path: Path) -> None:
    """The file is named in the error; a project without one has none."""
    path = tmp_path / "robots.yaml"
    path.write_text("rules: {LR-VIDEO-004: error}\n")
    assert read_policy(path).changes["LR-VIDEO-004"].severity == "error"
    assert project_policy(tmp_path, "robots") == read_policy(path)
    assert project_policy(tmp_path, "others").changes == {}
    for text in ("rules: [", "a: b", "\x00"):
        path.write_text(text)
        with pytest.raises(PolicyRefusedError, match=r"robots\.yaml"):
            read_policy(path)
    with pytest.raises(PolicyRefusedError, match="No such file"):
        read_policy(tmp_path / "nothing.yaml")

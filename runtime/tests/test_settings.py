"""Settings fail at the start, with every problem named and no value printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.runtime.errors import SettingsError
from forebay.runtime.settings import ServiceSettings, load_settings


def test_all_problems_are_listed_at_once() -> None:
    """Two wrong values are two lines, each with the variable's name."""
    with pytest.raises(SettingsError) as caught:
        load_settings(ServiceSettings, {"FOREBAY_HEALTH_PORT": "99999", "FOREBAY_HOME": "a\x00b", "FOREBAY_STORE": ""})
    assert "FOREBAY_HEALTH_PORT" in str(caught.value)
    with pytest.raises(SettingsError, match="2 settings do not fit"):
        load_settings(_Two, {"FOREBAY_ONE": "x", "FOREBAY_OTHER": "y"})


class _Two(ServiceSettings):
    one: int = 1
    other: int = 2


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    """The file gives defaults, the environment overrides them."""
    file = tmp_path / "forebay.toml"
    file.write_text('one = 5\nother = 6\nnats_url = "nats://elsewhere:1"\n', encoding="utf-8")
    found = load_settings(_Two, {"FOREBAY_SETTINGS": str(file), "FOREBAY_OTHER": "7"})
    assert (found.one, found.other, found.nats_url) == (5, 7, "nats://elsewhere:1")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """A settings file that is named but not there is said, not passed over."""
    with pytest.raises(SettingsError, match=r"none\.toml"):
        load_settings(ServiceSettings, {"FOREBAY_SETTINGS": str(tmp_path / "none.toml")})

"""One recorded message per event and version: history that today's code must go on reading."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.catalogue import BY_NAME, EVENTS
from forebay.contracts.codec import decode, encode
from jsonschema import Draft202012Validator

CONTRACTS = Path(__file__).parents[1]
SAMPLES = sorted((CONTRACTS / "samples").glob("v*/*.json"))


def load(path: Path) -> dict[str, Any]:
    sample: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return sample


def wire(sample: dict[str, Any]) -> bytes:
    return json.dumps(sample["body"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def is_current(path: Path) -> bool:
    """A sample of version N of an event lies in the folder `vN`."""
    return path.parent.name == f"v{BY_NAME[path.stem].body.version}"


@pytest.mark.parametrize("path", [path for path in SAMPLES if is_current(path)], ids=named)
def test_a_sample_decodes_and_encodes_to_itself(path: Path) -> None:
    """A message of the newest version is read, and written again as the same message."""
    sample = load(path)
    message = encode(decode(sample["subject"], sample["headers"], wire(sample)))
    assert message.subject == sample["subject"]
    assert message.headers == sample["headers"]
    assert json.loads(message.body) == sample["body"]


@pytest.mark.parametrize("path", [path for path in SAMPLES if not is_current(path)], ids=named)
def test_a_sample_of_an_older_version_is_read_as_the_newest(path: Path) -> None:
    """What was released once is read where it stands, brought up to date, and written as the newest version."""
    sample, newest = load(path), load(CONTRACTS / f"samples/v{BY_NAME[path.stem].body.version}" / path.name)
    event = decode(sample["subject"], sample["headers"], wire(sample))
    assert event == decode(newest["subject"], newest["headers"], wire(newest))
    assert encode(event).subject == newest["subject"]


@pytest.mark.parametrize("path", SAMPLES, ids=named)
def test_a_schema_accepts_its_sample(path: Path) -> None:
    """The schema at `ce-dataschema` describes what is really sent."""
    sample = load(path)
    name = sample["headers"]["ce-dataschema"].rsplit("/", 1)[-1]
    schema = json.loads((CONTRACTS / "schemas" / name).read_text(encoding="utf-8"))
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(sample["body"])


def test_every_event_has_a_sample() -> None:
    """An event without a recorded message would have no history to be read."""
    assert {path.stem for path in SAMPLES if path.parent.name == "v1"} == set(BY_NAME)
    assert len(BY_NAME) == len(EVENTS)


def test_samples_are_only_ever_added() -> None:
    """SHA256SUMS holds each sample's digest: a changed sample is a changed history."""
    listed: dict[str, str] = {}
    for folder in sorted((CONTRACTS / "samples").glob("v*")):
        for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
            digest, name = line.split()
            listed[f"{folder.name}/{name}"] = digest
    found = {f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in SAMPLES}
    assert found == listed

"""One dataset by three access plans: LeRobot files on a mount (A), Lance on object storage (B), Lance on a mount (C).

`sdk.open` gives the same data by the same name in all of them, the cache plans and
proves each in its own way, and of buckets, servers and keys nothing is ever shown.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from forebay import sdk
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.juicefs_volume import Bucket
from forebay.cache.adapters.locations import choose_between, local_folder, planner_at
from forebay.cache.domain.plan import ReadPlan, range_bytes
from forebay.cache.errors import DataChangedError, DataUnreadableError, OriginError
from forebay.runtime.object_stores import FILE
from forebay.sdk import errors as sdk_errors
from forebay.sdk.inputs import Inputs
from forebay.sdk.preflight import Surroundings, run_preflight

from sdk.tests import builders
from sdk.tests.test_dataset import as_lance, environment
from services.cache.tests.mounts import mounted
from tests.servers.origin_proxy import OriginProxy, origin_proxy
from tests.servers.seaweedfs import ACCESS_KEY, SECRET_KEY, S3Server, s3_server_beside

CAMERA = "observation.images.top"
COLUMNS = ("observation.state", "action", CAMERA)
HIDDEN = (SECRET_KEY, ACCESS_KEY, "127.0.0.1", "robots-of-the-test")
"""What nobody may be shown: keys, server, bucket."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one plan's version lies, and who can warm it."""

    plan: str
    root: str
    home: Path
    pool: Path
    log: Path | None


def keys(home: Path, endpoint: str, **more: Any) -> None:
    home.mkdir(parents=True, exist_ok=True)
    store = {"endpoint": endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, **more}
    path = home / FILE
    path.touch(mode=0o600)
    path.write_text(json.dumps({"stores": {"robots-of-the-test": store}}))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.record(tmp_path_factory.mktemp("recording") / "reach")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, OriginProxy]]:
    with s3_server_beside(tmp_path_factory.mktemp("weed")) as server, origin_proxy(server.endpoint) as wire:
        wire.on = lambda _, path: "/robots-of-the-test" in path
        yield server, wire


@pytest.fixture(scope="module")
def pool(stores: tuple[S3Server, OriginProxy], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A JuiceFS mount over the same object storage; a folder where there is no FUSE."""
    folder = tmp_path_factory.mktemp("pool")
    if juicefs_volume.fuse_available() is not None:
        yield folder
        return
    bucket = Bucket(url=f"{stores[0].endpoint}/blocks", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with mounted(folder, storage=bucket) as mount:
        yield mount.mountpoint


@pytest.fixture(scope="module")
def places(
    stores: tuple[S3Server, OriginProxy], pool: Path, recording: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Place, dict[str, Any]]]:
    home = tmp_path_factory.mktemp("home")
    keys(home, stores[1].url)
    files, tables = pool / "files" / "v1", pool / "tables" / "v1"
    shutil.copytree(recording, files)
    as_lance(recording, tables)
    pins = {"A": builders.pinned(files), "C": builders.pinned(tables, access_plan="C")}
    server, _ = stores
    uri = asyncio.run(server.upload(tables, "robots-of-the-test", "pick/v1"))
    pins["B"] = {**pins["C"], "access_plan": "B", "root": uri}
    return {
        name: (Place(name, str(pin["root"]), home, pool, None), {**pin, "columns": COLUMNS})
        for name, pin in pins.items()
    }


@pytest.fixture(params=["A", "B", "C"])
def place(
    request: pytest.FixtureRequest, places: dict[str, tuple[Place, dict[str, Any]]]
) -> tuple[Place, dict[str, Any]]:
    return places[request.param]


def plan_of(at: Place) -> ReadPlan:
    return planner_at(at.home)(local_folder(at.root), columns=COLUMNS)


def test_the_same_data_by_the_same_name(
    place: tuple[Place, dict[str, Any]], recording: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames and videos are equal bit by bit, whatever lies behind; nothing of it is shown or logged."""
    at, pin = place
    caplog.set_level(logging.DEBUG)
    dataset = sdk.open(
        "dataset:reach@train-ready", environ={**environment(tmp_path, pin), "FOREBAY_HOME": str(at.home)}
    )
    plain = sdk.open("reach@v1", environ=environment(tmp_path, builders.pinned(recording)))
    for column in ("observation.state", "action"):
        np.testing.assert_array_equal(dataset.numpy(column), plain.numpy(column))
    np.testing.assert_array_equal(dataset.numpy("action", episodes=[2]), plain.numpy("action", episodes=[2]))
    assert dataset.video_bytes(CAMERA, 1) == plain.video_bytes(CAMERA, 1)
    file, start, stop = dataset.video_file(CAMERA, 1)
    with file:
        file.seek(100)
        assert file.read(50) == plain.video_bytes(CAMERA, 1)[100:150]
    assert stop > start
    for hidden in HIDDEN:
        assert hidden not in repr(dataset) + repr(vars(dataset)) + caplog.text


def test_each_is_planned_and_checked_in_its_own_way(place: tuple[Place, dict[str, Any]]) -> None:
    """On a mount blocks are proved; on object storage it is said what cannot be."""
    at, _ = place
    plan = plan_of(at)
    kind: Literal["juicefs", "folder"] = "juicefs" if juicefs_volume.is_mounted(at.pool) else "folder"
    choose = choose_between(kind, at.pool, home=at.home)
    root = local_folder(plan.root)
    chosen = choose(root, plan.files)
    expected = {"A": kind, "B": "object-storage", "C": kind}
    assert chosen.traits.adapter == expected[at.plan]
    for file in plan.files:
        chosen.fetch(root, file)
    found = chosen.check(root, plan.files)
    assert sum(range_bytes(one.verified) for one in found) == plan.total_bytes
    assert not [one for part in found for one in part.missing]
    if at.plan == "B":
        assert "jobs read this version from object storage itself" in (chosen.traits.cannot_prove or "")
        assert chosen.drop(root, plan.files) == 0
    assert SECRET_KEY not in json.dumps(plan.to_json())


def test_lerobot_files_that_stay_on_object_storage(
    places: dict[str, tuple[Place, dict[str, Any]]],
    stores: tuple[S3Server, OriginProxy],
    recording: Path,
    tmp_path: Path,
) -> None:
    """A dataset that was registered where it lies is planned, checked and read there, in parts."""
    uri = asyncio.run(stores[0].upload(recording, "robots-of-the-test", "owners/reach"))
    home = places["A"][0].home
    plan = planner_at(home)(local_folder(uri), columns=("action",))
    assert 0 < plan.total_bytes < plan.whole_bytes
    root = local_folder(plan.root)
    found = choose_between("folder", tmp_path, home=home)(root, plan.files).check(root, plan.files)
    assert sum(range_bytes(one.verified) for one in found) == plan.total_bytes
    pin = {**places["A"][1], "root": uri}
    far = sdk.open("reach@v1", environ={**environment(tmp_path, pin), "FOREBAY_HOME": str(home)})
    near = sdk.open("reach@v1", environ=environment(tmp_path, builders.pinned(recording)))
    np.testing.assert_array_equal(far.numpy("action"), near.numpy("action"))
    assert far.video_bytes(CAMERA, 2) == near.video_bytes(CAMERA, 2)


def test_lance_is_planned_alike_on_object_storage(places: dict[str, tuple[Place, dict[str, Any]]]) -> None:
    """Byte for byte the plan of the mount: the planner reads tails wherever they lie."""
    on_mount, on_store = plan_of(places["C"][0]), plan_of(places["B"][0])
    assert [(one.path, one.size, one.ranges) for one in on_store.files] == [
        (one.path, one.size, one.ranges) for one in on_mount.files
    ]


def test_preflight_on_object_storage(
    places: dict[str, tuple[Place, dict[str, Any]]], stores: tuple[S3Server, OriginProxy], tmp_path: Path
) -> None:
    """Listed sizes against the pinned manifest; a job with another digest is stopped."""
    at, pin = places["B"]

    def check(pinned: dict[str, Any]) -> tuple[str, str]:
        around = Surroundings(output=tmp_path, free_bytes=1, environment={"PATH": os.defpath}, home=at.home)
        found = run_preflight(Inputs.model_validate({"inputs": [pinned]}), ("true",), around)
        return next((one.status, one.message) for one in found if one.name.startswith("data"))

    assert check(pin)[0] == "pass"
    status, message = check({**pin, "manifest_sha256": "0" * 64})
    assert status == "fail"
    assert "is not the one that the job pinned" in message
    bucket, stray = stores[0].bucket("robots-of-the-test"), "frames.lance/_versions/1.manifest"
    bucket.put(f"pick/v1/{stray}", b"of another time")
    try:
        status, message = check(pin)
        assert (status, message.startswith(stray)) == ("fail", True)
    finally:
        bucket.delete(f"pick/v1/{stray}")


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [({"refuse": 403}, "refused"), ({"refuse": 500}, "failing"), ({"gone": True}, "gone")],
    ids=["403", "500", "gone"],
)
def test_a_store_that_fails(
    places: dict[str, tuple[Place, dict[str, Any]]],
    stores: tuple[S3Server, OriginProxy],
    tmp_path: Path,
    fault: dict[str, Any],
    trouble: str,
) -> None:
    """Checks and readers say so in their own words; the store's words, place and keys stay inside."""
    at, pin = places["B"]
    plan = plan_of(at)
    wire = stores[1]
    for name, value in fault.items():
        setattr(wire, name, value)
    try:
        root = local_folder(plan.root)
        with pytest.raises(OriginError) as caught:
            choose_between("folder", at.pool, home=at.home)(root, plan.files).check(root, plan.files[:1])
        assert caught.value.trouble == trouble
        with pytest.raises(sdk_errors.DataUnreadableError) as told:
            sdk.open("reach@v1", environ={**environment(tmp_path, pin), "FOREBAY_HOME": str(at.home)})
        assert told.value.__cause__ is None
        for hidden in HIDDEN:
            assert hidden not in str(told.value)
        assert SECRET_KEY not in str(caught.value)
        assert ACCESS_KEY not in str(caught.value)
    finally:
        wire.heal()


def test_objects_that_are_not_what_was_planned(
    places: dict[str, tuple[Place, dict[str, Any]]], stores: tuple[S3Server, OriginProxy], tmp_path: Path
) -> None:
    """A lost object and one of another size are named."""
    _, pin = places["B"]
    at = Place("B", "s3://robots-of-the-test/changed/v1", places["B"][0].home, places["B"][0].pool, None)
    tables = Path(str(places["C"][1]["root"]).removeprefix("file://"))
    asyncio.run(stores[0].upload(tables, "robots-of-the-test", "changed/v1"))
    plan = plan_of(at)
    assert plan.files == plan_of(places["B"][0]).files
    root = local_folder(plan.root)
    chosen = choose_between("folder", at.pool, home=at.home)(root, plan.files)
    bucket = stores[0].bucket("robots-of-the-test")
    victim = next(one for one in plan.files if one.path.startswith("frames.lance/data/"))
    bucket.put(f"changed/v1/{victim.path}", b"short")
    with pytest.raises(DataChangedError, match=r"has 5 bytes"):
        chosen.check(root, plan.files)
    bucket.delete(f"changed/v1/{victim.path}")
    with pytest.raises(DataUnreadableError, match="is not there"):
        chosen.check(root, plan.files)
    dataset = sdk.open(
        "reach@v1", environ={**environment(tmp_path, {**pin, "root": at.root}), "FOREBAY_HOME": str(at.home)}
    )
    with pytest.raises(sdk_errors.DataUnreadableError) as told:
        dataset.numpy("action")
    for hidden in HIDDEN:
        assert hidden not in str(told.value)


def test_keys_that_end_are_replaced_under_a_running_job(
    places: dict[str, tuple[Place, dict[str, Any]]], stores: tuple[S3Server, OriginProxy], tmp_path: Path
) -> None:
    """Expired keys are refused by name of the file; new ones in it go on without opening again."""
    _, pin = places["B"]
    home, environ = tmp_path / "home", environment(tmp_path, pin)
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    keys(home, stores[1].url, expires=soon)
    dataset = sdk.open("reach@v1", environ={**environ, "FOREBAY_HOME": str(home)})
    before = dataset.numpy("action")
    keys(home, stores[1].url, expires="2020-01-01T00:00:00Z")
    with pytest.raises(sdk_errors.DataUnreadableError, match="put new ones there"):
        dataset.numpy("action")
    keys(home, stores[1].url)
    np.testing.assert_array_equal(dataset.numpy("action"), before)

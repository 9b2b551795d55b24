"""`forebay dataset place`: a version's second place on real object storage, read back, and leased with `access: B`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import obstore
import pytest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import MANIFEST_FILE, DatasetVersionPlaced, LeaseGranted, LeaseRefused
from forebay.ingest import questions
from forebay.ingest.domain.placing import place_version
from forebay.runtime.errors import Refused, RetryLater
from forebay.runtime.machine import NothingPending
from forebay.runtime.object_stores import FILE, keys_of

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests import stories
from services.ingest.tests.place import Place
from services.ingest.tests.simulated_log import PROJECT, request
from services.ingest.tests.stories import DATASET
from tests.servers.origin_proxy import OriginProxy, origin_proxy
from tests.servers.seaweedfs import ACCESS_KEY, SECRET_KEY, S3Server, s3_server_beside

VERSION = f"{PROJECT}/{DATASET}/v1"


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, OriginProxy]]:
    with s3_server_beside(tmp_path_factory.mktemp("weed")) as server, origin_proxy(server.endpoint) as wire:
        wire.on = lambda _, path: path.startswith("/robots")
        server.bucket("robots").put("somebody-elses", b"object")  # which makes the bucket
        yield server, wire


@pytest.fixture
def place(tmp_path: Path, links: tuple[S3Server, OriginProxy]) -> Iterator[Place]:
    """Ingest with one version in its pool, and keys."""
    made = Place(tmp_path)
    keys(tmp_path, links[1].url)
    made.upload(lerobot.build(tmp_path / "source"))
    yield made
    links[1].heal()


def keys(home: Path, endpoint: str, secret: str = SECRET_KEY) -> None:
    path = home / FILE
    path.touch(mode=0o600)
    store = {"endpoint": endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": secret}
    path.write_text(json.dumps({"stores": {"robots": store}}))


def ask(place: Place, dataset: str = DATASET, uri: str | None = None, id_: str = "place-1") -> dict[str, Any]:
    """Each test has a prefix of its own."""
    uri = f"s3://robots/{place.pool.parent.name}" if uri is None else uri
    return place.log.command(
        place_version(place.log.state, NothingPending(), request({"dataset": dataset, "uri": uri}, id_))
    )


async def test_a_job_that_asks_for_object_storage_waits_until_the_version_is_there(
    place: Place, links: tuple[S3Server, OriginProxy], tmp_path: Path
) -> None:
    """It is told what is missing and what to do; then it is leased the other place, others the pool."""
    await place.work()
    root = f"s3://robots/{tmp_path.name}/{VERSION}"
    stories.submit(place.log, f"{DATASET}@train-ready", job="far", access="B")
    stories.submit(place.log, f"{DATASET}@train-ready", job="near")
    refused = place.log.of(LeaseRefused)[-1]
    assert refused.job == "far"
    assert not refused.permanent
    assert refused.reason == Reason.DATASET_NOT_PLACED
    assert f"forebay dataset place {DATASET}@v1 s3://BUCKET/PREFIX" in refused.message
    assert ask(place) == {"dataset": DATASET, "number": 1, "root": root, "placing": "pl-" + _id(place), "joined": False}
    await place.work()
    (placed,) = place.log.of(DatasetVersionPlaced)
    assert (placed.root, placed.access_plan, placed.problem) == (root, "B", None)
    leases = {lease.job: lease.inputs[0] for lease in place.log.of(LeaseGranted)}
    assert (leases["far"].access_plan, leases["far"].root) == ("B", root)
    assert leases["near"].access_plan == "C"
    assert leases["near"].root.endswith("/v1")
    assert "s3://" not in leases["near"].root
    assert leases["far"].manifest_sha256 == leases["near"].manifest_sha256
    options = keys_of("robots", home=tmp_path).options()
    there = lance.dataset(f"{root}/frames.lance", storage_options=options).to_table()
    assert there.equals(lance.dataset(f"{leases['near'].root}/frames.lance").to_table())
    (shown,) = questions.dataset(place.log.state, request({"dataset": DATASET}))["versions"]
    assert shown["places"] == {"B": root}
    assert ask(place, id_="place-2")["joined"]
    assert SECRET_KEY not in "".join(str(record.body) for record in place.log.records)


def _id(place: Place) -> str:
    return next(key for kind, key in place.log.work if kind == "place").removeprefix("pl-")


async def test_what_is_there_is_not_copied_again(place: Place, links: tuple[S3Server, OriginProxy]) -> None:
    """A broken object is, an unbroken one is not; the manifest is in its place at the end."""
    await place.work()
    bucket = links[0].bucket("robots")
    prefix = f"{place.pool.parent.name}/{VERSION}"
    ask(place)
    await place.work()
    names = {str(one["path"]) for part in obstore.list(bucket, prefix) for one in part}
    victim = next(name for name in names if "/frames.lance/data/" in name)
    bucket.put(victim, b"broken")
    bucket.delete(f"{prefix}/{MANIFEST_FILE}")
    written: list[str] = []
    wire = links[1]

    def put(method: str, path: str) -> bool:
        if method == "PUT":
            written.append(path.partition("?")[0].removeprefix("/robots/"))
        return method == "PUT"

    before = wire.on
    wire.on = put
    (emit,) = await _run(place, place.workers["place"], place.log.work["place", "pl-" + _id(place)])
    wire.on = before
    assert emit.body.problem is None
    assert set(written) == {
        victim,
        f"{prefix}/{MANIFEST_FILE}",
    }
    assert {str(one["path"]) for part in obstore.list(bucket, prefix) for one in part} == names


async def _run(place: Place, worker: Any, work: Any) -> Any:
    """The work as after a kill: before its answer was heard."""
    from forebay.ingest.domain.documents import Version, version_key  # noqa: PLC0415
    from msgspec.structs import replace  # noqa: PLC0415

    from services.ingest.tests.simulated_log import Context, item_of  # noqa: PLC0415

    version = place.log.state.get(Version, version_key(PROJECT, DATASET, 1))
    assert version is not None
    place.log.state.put(replace(version, placing=None, places={}))
    return await worker(item_of(work), Context(place.log.state))


async def test_a_prefix_that_holds_something_else(place: Place, links: tuple[S3Server, OriginProxy]) -> None:
    """Another table's manifest there would be read as a newer version: the prefix is refused by the object's name."""
    await place.work()
    name = "frames.lance/_versions/1.manifest"
    links[0].bucket("robots").put(f"{place.pool.parent.name}/{VERSION}/{name}", b"of another time")
    ask(place)
    await place.work()
    (placed,) = place.log.of(DatasetVersionPlaced)
    assert f"first {name}; name a prefix of its own" in (placed.problem or "")
    assert not questions.dataset(place.log.state, request({"dataset": DATASET}))["versions"][0]["places"]


async def test_a_store_that_refuses_or_is_away(
    place: Place, links: tuple[S3Server, OriginProxy], tmp_path: Path
) -> None:
    """Wrong keys end the request with a sentence; a store that is away is asked again; keys are in neither."""
    await place.work()
    keys(tmp_path, links[1].url, secret="a-wrong-secret")  # noqa: S106 it opens nothing
    ask(place)
    await place.work()
    (failed,) = place.log.of(DatasetVersionPlaced)
    assert failed.problem is not None
    assert "SignatureDoesNotMatch" in failed.problem
    assert "a-wrong-secret" not in failed.problem
    assert ACCESS_KEY not in failed.problem
    keys(tmp_path, links[1].url)
    links[1].gone = True
    ask(place, id_="place-2")
    with pytest.raises(RetryLater) as caught:
        await place.work()
    assert SECRET_KEY not in str(caught.value)


async def test_what_cannot_be_placed(place: Place) -> None:
    """Folders, odd places and versions that are not there are refused with what can be written."""
    await place.work()
    for uri, says in (("/tmp/x", "no place on object storage"), ("http://x/y", "s3://bucket/prefix"), ("", "no place")):
        with pytest.raises(Refused, match=says):
            ask(place, uri=uri)
    with pytest.raises(Refused):
        ask(place, dataset=f"{DATASET}@v9")

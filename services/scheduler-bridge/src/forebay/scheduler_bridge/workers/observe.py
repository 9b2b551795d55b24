"""Watches the cluster and puts what it sees on record: on change, raw, masked, joined by uid, once.

A companion of the service. It knows which objects belong to our jobs, keeps the
last state of what is around them (nodes, queues, claims), and offers a fact when a
digest differs from the one on record. After a restart the first list is compared
with the record: what changed meanwhile is said, and what went is said too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Protocol

from forebay.runtime.companion import Company
from forebay.runtime.machine import Emit
from forebay.runtime.state import State
from forebay.scheduler_bridge.adapters.list_watch import Gone, Listed, Put, Seen, Trouble
from forebay.scheduler_bridge.domain.adopt import Adoption, AnotherJobError, submission
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.cluster.facts import fact_of, has_finished, is_over, is_troubled, unseen
from forebay.scheduler_bridge.domain.cluster.nodes import FEW, TaintedNodes, as_a_whole, is_short
from forebay.scheduler_bridge.domain.cluster.objects import (
    COLLECTIONS,
    PENDING,
    Collection,
    Json,
    digest_of,
    job_labels,
    owner_uids,
    trim,
)
from forebay.scheduler_bridge.domain.documents import Job, place
from forebay.scheduler_bridge.domain.kubernetes.facts import part, uid_of
from forebay.scheduler_bridge.domain.kubernetes.taints import is_repelled, taints_of

_log = logging.getLogger(__name__)
Owner = tuple[str, str]
"""(project, job)"""
LIVED = ("Job", "Pod", "Workload")
"""Kinds whose absence from a list means that they were deleted."""
_BELONGINGS = frozenset({"Pod", "Workload"})
"""Of a Job. Its end is the last word about it, so Jobs are listed before them and looked at after them: whatever a Job
that is over has left behind is then in the later lists, and known before its end is."""
AROUND = ("Node", "ClusterQueue", "LocalQueue", "PersistentVolumeClaim")
"""Kinds that jobs depend on and share."""
MAX_WAITING = 2_000
"""Objects whose events and dependants are kept because whose they are is not known yet."""
MAX_KNOWN = 20_000
"""Objects whose digest is kept; of any other the record is asked."""
BATCH = 200


class Watcher(Protocol):
    """One collection, followed for ever."""

    def run(self) -> AsyncIterator[Seen]: ...


class Observer:
    """One cluster, as far as it concerns our jobs."""

    def __init__(
        self,
        watch: Callable[[Collection], Watcher],
        namespaces: Mapping[str, str],
        adopt: Callable[[Json], Adoption | None] = lambda _: None,
    ) -> None:
        self._watch = watch
        self._adopt = adopt
        self._namespaces = namespaces
        """Project -> where its jobs run; labels in any other namespace are a stranger's claim."""
        self._places = frozenset(namespaces.values())
        self._owners: dict[str, Owner] = {}
        """uid of a Job, Pod or Workload -> whose it is"""
        self._around: dict[tuple[str, str, str], Json] = {}
        """(kind, namespace, name) -> nodes, queues and claims as they are now"""
        self._used: dict[tuple[str, str, str], set[Owner]] = defaultdict(set)
        """... and who depends on them"""
        self._uses: dict[Owner, set[tuple[str, str, str]]] = defaultdict(set)
        """The same by who, until the job is over"""
        self._latest: dict[str, tuple[str, str]] = {}
        """uid of a Job -> digest and resourceVersion as last seen; most versions change nothing of interest"""
        self._adoptions: dict[str, Adoption] = {}
        """uid of a Job that somebody applied -> the job that it is to become"""
        self._tainted = TaintedNodes()
        self._nodes: dict[str, Json] = {}
        self._refused: dict[str, tuple[Owner, Json]] = {}
        """uid of a pod that no node takes, because of taints or for lack of room"""
        self._orphans: dict[str, dict[str, Json]] = {}
        """Workloads, pods and events that came before what they belong to; by uid of that, then by their own"""
        self._said: dict[tuple[str, str, str], str] = {}
        self._offers: asyncio.Queue[tuple[Owner, Json, bool, str]] = asyncio.Queue(maxsize=10 * BATCH)
        self._trouble: dict[str, str] = {}
        self._listed: set[str] = set()
        self._jobs_fetched = asyncio.Event()
        self._belongings = asyncio.Event()
        self._jobs_listed = asyncio.Event()
        self.seen_at = 0.0

    async def __call__(self, company: Company) -> None:
        """Run until cancelled."""
        company.probe("cluster", self._health)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._speak(company))
            for collection in COLLECTIONS:
                group.create_task(self._follow(collection, company))

    def _health(self) -> str:
        wanted = [item.kind for item in COLLECTIONS if item.kind not in self._listed and item.kind not in self._trouble]
        troubles = [f"{kind}: {cause}" for kind, cause in sorted(self._trouble.items())]
        return "; ".join(troubles) or (f"listing {', '.join(wanted)}" if wanted else "watched")

    async def _follow(self, collection: Collection, company: Company) -> None:
        if collection.kind in _BELONGINGS:
            await self._jobs_fetched.wait()
        async for seen in self._watch(collection).run():
            if collection.kind == "Job":
                self._jobs_fetched.set()
                await self._belongings.wait()
            match seen:
                case Trouble(cause=cause, missing=missing):
                    if not (missing and collection.optional) and self._trouble.get(collection.kind) != cause:
                        _log.warning("cannot watch %s: %s", collection.kind, cause)
                    if not (missing and collection.optional):
                        self._trouble[collection.kind] = cause
                    self._was_listed(collection)
                    continue
                case Listed(objects=objects, since=since):
                    noted = [self._note(collection, item) for item in objects if self._is_near(item)]
                    await self._take_list(collection, noted, since, company)
                case Put(object=item) if self._is_near(item):
                    await self._take(self._note(collection, item), gone=False)
                case Gone(object=item) if self._is_near(item):
                    await self._take(self._note(collection, item), gone=True)
            self._trouble.pop(collection.kind, None)
            self.seen_at = time.monotonic()

    def _is_near(self, item: Json) -> bool:
        """It belongs to the whole cluster, or stands where jobs of a project run; nothing else can be a job's."""
        namespace = item["metadata"].get("namespace")
        return not namespace or namespace in self._places

    def _note(self, collection: Collection, item: Json) -> Json:
        """The object as it goes on record; of a Job that somebody applied it is kept what job it is to become."""
        item = {**item, "kind": collection.kind}
        uid = uid_of(item)
        if collection.kind == "Job" and uid not in self._owners:
            found = self._adopt(item)
            if found is not None:
                self._adoptions[uid] = found
                self._owners[uid] = (found.project, found.body.job)
        return trim(item)

    def _was_listed(self, collection: Collection) -> None:
        """As far as it can be."""
        self._listed.add(collection.kind)
        if collection.kind == "Job":
            self._jobs_listed.set()
        if self._listed >= _BELONGINGS:
            self._belongings.set()

    async def _take_list(
        self, collection: Collection, objects: list[Json], since: datetime | None, company: Company
    ) -> None:
        """Every object, and of those on record that are not among them, that they went unseen."""
        for item in objects:
            await self._take(item, gone=False)
        self._was_listed(collection)
        if collection.kind == "Node":
            await self._take_again()
        if collection.kind in AROUND:
            await self._take_changed(collection.kind, since, company)
        if collection.kind not in LIVED:
            return
        await self._jobs_listed.wait()  # how a job ended says more about its pods than that they are gone
        there = {uid_of(item) for item in objects}
        known = await company.read(lambda state: _live(state, collection.kind))
        gone = [document for document in known if document.uid not in there]
        if gone:
            note = unseen(since or max(document.at for document in known), datetime.now(UTC))
            for document in gone:
                await self._offers.put(((document.project, document.job), document.body, True, note))

    async def _take_changed(self, kind: str, since: datetime | None, company: Company) -> None:
        """What jobs had trouble with may be well again, or gone, without anybody having watched."""
        for document in await company.read(lambda state: _held_against(state, kind)):
            now, owner = self._around.get(_place_of(document.body)), (document.project, document.job)
            if now is not None and uid_of(now) == document.uid:
                await self._offers.put((owner, now, False, ""))
            else:
                note = unseen(since or document.at, datetime.now(UTC))
                await self._offers.put((owner, document.body, True, note))

    async def _take(self, item: Json, *, gone: bool) -> None:
        kind = item["kind"]
        if kind in AROUND:
            await self._take_around(item, gone=gone)
        elif kind == "Event":
            if not gone:  # events are forgotten by the API after an hour; that is no news
                await self._take_event(item)
        else:
            await self._take_owned(item, gone=gone)

    async def _take_owned(self, item: Json, *, gone: bool) -> None:
        uid = uid_of(item)
        owner = self._owners.get(uid) or self._claimed(item)
        if owner is None:
            owner = next((self._owners[one] for one in owner_uids(item) if one in self._owners), None)
        if owner is None:
            if not gone and item["kind"] != PENDING:  # a place is told again soon
                self._adopt_later(item, owner_uids(item))
            return
        if not gone and has_finished(item):
            await self._take_orphans(uid, owner)
        self._keep_latest(item, gone=gone)
        await self._offers.put((owner, item, gone, ""))
        if gone:
            self._owners.pop(uid, None)
            self._refused.pop(uid, None)
            return
        if item["kind"] == PENDING:
            return  # nothing belongs to a place in a queue
        for place_ in self._surroundings(item):
            self._use(owner, place_)
            near = self._around.get(place_)
            if near is not None and is_troubled(near):
                await self._offers.put((owner, near, False, ""))
        await self._take_refused(owner, item)
        await self._take_orphans(uid, owner)

    def _keep_latest(self, item: Json, *, gone: bool) -> None:
        """Of Jobs; one that is over depends on nothing any more, however long its nodes and queues live."""
        if item["kind"] != "Job":
            return
        uid = uid_of(item)
        if gone:
            self._latest.pop(uid, None)
        else:
            self._latest[uid] = digest_of(item), str(item["metadata"].get("resourceVersion") or "")
        if gone or has_finished(item):
            owner = self._owners.get(uid)
            for place_ in self._uses.pop(owner, ()) if owner else ():
                self._used[place_].discard(owner)

    def latest(self, uid: str) -> tuple[str, str] | None:
        """Digest and resourceVersion of a Job as the watch showed it last."""
        return self._latest.get(uid)

    def _use(self, owner: Owner, place_: tuple[str, str, str]) -> None:
        self._used[place_].add(owner)
        self._uses[owner].add(place_)

    async def _take_orphans(self, uid: str, owner: Owner) -> None:
        """What came before it was known whose it is."""
        self._owners[uid] = owner
        for orphan in self._orphans.pop(uid, {}).values():
            await self._take(orphan, gone=False)

    def _claimed(self, item: Json) -> Owner | None:
        """Whose the object says it is, when it stands where that project's jobs run."""
        found = job_labels(item)
        if found is None or self._namespaces.get(found[0]) != item["metadata"].get("namespace"):
            return None
        return found

    def _adopt_later(self, item: Json, uids: Iterable[str]) -> None:
        for uid in uids:
            self._orphans.setdefault(uid, {})[uid_of(item)] = item
        while len(self._orphans) > MAX_WAITING:  # most are other people's; the oldest go first
            del self._orphans[next(iter(self._orphans))]

    async def _take_event(self, item: Json) -> None:
        involved = item.get("involvedObject") or {}
        uid = str(involved.get("uid") or "")
        owner = self._owners.get(uid)
        if owner is not None:
            await self._offers.put((owner, item, False, ""))
        elif involved.get("kind") in LIVED:
            self._adopt_later(item, (uid,))

    async def _take_refused(self, owner: Owner, item: Json) -> None:
        """Nodes that explain why none takes a pod go on record for its job: the scheduler only counts them."""
        if item["kind"] != "Pod":
            return
        self._refused.pop(uid_of(item), None)
        if part(item, "spec", "nodeName"):
            return
        repelled, short = is_repelled(item), is_short(item)
        if not repelled and not short:
            return
        self._refused[uid_of(item)] = (owner, item)
        named = list(self._tainted.repelling(item)) if repelled else []
        if short and "Node" in self._listed:
            named += [str(node["metadata"]["name"]) for node in as_a_whole(self._nodes)]
        for name in named:
            self._use(owner, ("Node", "", name))
            await self._offers.put((owner, self._nodes[name], False, ""))

    async def _take_around(self, item: Json, *, gone: bool) -> None:
        place_ = _place_of(item)
        before = self._around.get(place_)
        self._around[place_] = item
        if gone:
            del self._around[place_]
        notable = gone or is_troubled(item) or (before is not None and is_troubled(before))
        if notable or (before is not None and _another_place(before, item)):
            for owner in sorted(self._used.get(place_, ())):
                await self._offers.put((owner, item, gone, ""))
        if item["kind"] == "Node":
            await self._take_node(item, gone=gone)

    async def _take_node(self, item: Json, *, gone: bool) -> None:
        """One more node or one more taint may be why a pod is not taken."""
        name = str(item["metadata"].get("name"))
        if gone:
            self._tainted.drop(name)
            self._nodes.pop(name, None)
            return
        fresh = self._tainted.put(item) or (name not in self._nodes and len(self._nodes) < FEW)
        self._nodes[name] = item
        if fresh:
            await self._take_again()

    async def _take_again(self) -> None:
        for owner, pod in list(self._refused.values()):
            await self._take_refused(owner, pod)

    def _surroundings(self, item: Json) -> Iterator[tuple[str, str, str]]:
        """Nodes, queues and claims that an object depends on while it is not over."""
        if is_over(item):
            return
        spec, namespace = item.get("spec") or {}, str(item["metadata"].get("namespace") or "")
        if item["kind"] == "Pod":
            if spec.get("nodeName"):
                yield "Node", "", str(spec["nodeName"])
            for volume in spec.get("volumes") or ():
                claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                if claim:
                    yield "PersistentVolumeClaim", namespace, str(claim)
        elif item["kind"] == "Workload" and spec.get("queueName"):
            local = ("LocalQueue", namespace, str(spec["queueName"]))
            yield local
            cluster_queue = (self._around.get(local, {}).get("spec") or {}).get("clusterQueue")
            if cluster_queue:
                yield "ClusterQueue", "", str(cluster_queue)

    async def _speak(self, company: Company) -> None:
        """Say what was offered, in batches as they come; nothing waits for a batch to fill."""
        while True:
            offers = [await self._offers.get()]
            while len(offers) < BATCH and not self._offers.empty():
                offers.append(self._offers.get_nowait())
            for _, item, _, _ in offers:
                if (found := self._adoptions.pop(uid_of(item), None)) is not None:
                    await _take_over(found, company)
            fresh = await self._fresh(offers, company)
            if fresh:
                await company.say(*fresh)

    async def _fresh(self, offers: list[tuple[Owner, Json, bool, str]], company: Company) -> list[Emit]:
        """Facts that are not on record, of jobs that we know and that are not over."""
        unknown = {owner for owner, item, _, _ in offers if (*owner, uid_of(item)) not in self._said}
        wanted = [(owner, uid_of(item), _job_uids(item)) for owner, item, _, _ in offers if owner in unknown]
        if wanted:
            for key, digest in await company.read(lambda state: _on_record(state, wanted)):
                self._said.setdefault(key, digest)
        emits = []
        for owner, item, gone, note in offers:
            key = (*owner, uid_of(item))
            digest = "gone" if gone else digest_of(item)
            if self._said.get(key) in {None, digest, "gone"}:
                continue
            if gone:
                self._said.pop(key)  # the record says "gone" from now on
            else:
                self._said[key] = digest
            emits.append(fact_of(*owner, item, gone=gone, note=note))
        while len(self._said) > MAX_KNOWN:
            del self._said[next(iter(self._said))]
        return emits


async def _take_over(found: Adoption, company: Company) -> None:
    """Put a Job that somebody applied on record before anything is said about it."""
    try:
        emit = await company.read(lambda state: submission(state, found))
    except AnotherJobError as error:
        _log.warning("%s; it is left alone", error)
        return
    if emit is not None and not found.ended:
        await company.settle(emit)


def _another_place(before: Json, item: Json) -> bool:
    """What a node has to give, or whom it repels, is not what it was."""
    if item["kind"] != "Node":
        return False
    sizes = [part(one, "status", "allocatable") for one in (before, item)]
    return sizes[0] != sizes[1] or list(taints_of(before)) != list(taints_of(item))


def _live(state: State, kind: str) -> list[ClusterObject]:
    return state.find(ClusterObject, "live", kind)


def _held_against(state: State, kind: str) -> list[ClusterObject]:
    """Those that are on record for a job which is not over."""
    jobs = [(document, state.get(Job, document.of)) for document in _live(state, kind)]
    return [document for document, job in jobs if job is not None and job.terminal is None]


def _place_of(item: Json) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], str(metadata.get("namespace") or ""), str(metadata.get("name"))


def _job_uids(item: Json) -> tuple[str, ...]:
    """The Job object that it is, or belongs to; a node or an event says nothing of that."""
    if item["kind"] == "Job":
        return (uid_of(item),)
    return owner_uids(item) if item["kind"] in LIVED else ()


def _on_record(
    state: State, wanted: list[tuple[Owner, str, tuple[str, ...]]]
) -> list[tuple[tuple[str, str, str], str]]:
    """What is known of each object: its digest, an empty text for a new one, nothing for a job that is not ours.

    Labels can be copied: what belongs to another Job object than the job's own is not the job's.
    """
    found = []
    for (project, job_id), uid, of in wanted:
        carrier = state.get(Carrier, place(project, job_id))
        if state.get(Job, place(project, job_id)) is None or (carrier and carrier.uid and of and carrier.uid not in of):
            continue
        document = state.get(ClusterObject, f"{project}/{job_id}/{uid}")
        digest = "" if document is None else "gone" if document.gone else document.digest
        found.append(((project, job_id, uid), digest))
    return found

"""Work "reconcile": looks at a job's objects on the cluster and does what its state still wants.

Level-triggered: what is there decides, so a run may be cut off at any line and
repeated. What the watch showed last is taken first, without a request: whatever is
changed names the version it was seen in, and a refusal makes us look. A Job is made
once; after an answer that says nothing, we look, adopt what is ours and never make a
second one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from forebay.contracts.v1.datasets import PinnedInput
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.domain.cluster.facts import said_of
from forebay.scheduler_bridge.domain.cluster.moves import HELD_BY, NOT_HELD, GateKind, Move, moves, to_make
from forebay.scheduler_bridge.domain.cluster.objects import KUEUE, Json
from forebay.scheduler_bridge.domain.cluster.record import JobRecord, record_of
from forebay.scheduler_bridge.domain.documents import Job, place
from forebay.scheduler_bridge.domain.gate import opening
from forebay.scheduler_bridge.domain.job_identity import Decision, Reply, Step, Wanted, after_create, after_look
from forebay.scheduler_bridge.domain.manifest import Site, Submission, owned, pod_annotations, queue_of, render
from forebay.scheduler_bridge.domain.masking import mask
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

_log = logging.getLogger(__name__)
SOURCE = "kubernetes-api"
ROUNDS = 8
"""More changes than this in one run mean that somebody undoes them."""
AGAIN_S = 15.0
"""Until a refused creation is tried once more: quotas and webhooks change."""
_PLURALS = {"Service": "services", "ConfigMap": "configmaps"}


Latest = Callable[[str], tuple[str, str] | None]
"""uid of a Job -> digest and resourceVersion as the watch showed it last"""


class Gates(Protocol):
    """Knows which gate the cluster honours."""

    async def kind(self, namespace: str, queue: str) -> GateKind: ...


class Reconciler:
    """Keeps the objects of all jobs on one cluster as their states want them."""

    def __init__(
        self, api: KubernetesApi, sites: Mapping[str, Site], gates: Gates, latest: Latest = lambda _: None
    ) -> None:
        self._api = api
        self._sites = sites
        self._gates = gates
        self._latest = latest
        self._made: set[str] = set()
        """Jobs whose object was made by this process and is not on record yet."""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        key = place(item.project, str(item.payload["job"]))
        site = self._sites.get(item.project)
        if site is None:
            raise RetryLater(
                AGAIN_S, f"there is no project file for {item.project}; put one where the bridge reads them"
            )
        known = await context.read(lambda state: record_of(state, key))
        if known is None:
            raise RetryLater(0.2, f"{key} is not folded yet")
        try:
            await _Run(self._api, self._gates, site, known, context, latest=self._latest, made=self._made).run()
        except ApiSilentError as error:
            raise RetryLater(1.0, str(error)) from error
        return ()


class _Run:
    """One look at one job, and what follows from it."""

    def __init__(
        self,
        api: KubernetesApi,
        gates: Gates,
        site: Site,
        known: JobRecord,
        context: WorkContext,
        *,
        latest: Latest,
        made: set[str],
    ) -> None:
        self._api = api
        self._made = made
        self._latest = latest
        self._gates = gates
        self._site = site
        self._known = known
        self._context = context
        job = known.job
        spec = job.request
        self._submission = Submission(spec=spec, job=job.id, run=job.run, user=job.submitted_by)
        self._namespace = site.project.namespace
        self._jobs = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        self._name = job.applied.name if job.applied else self._submission.name
        self._path = f"{self._jobs}/{self._name}"
        self._about = f"Job/{self._namespace}/{self._name}"

    async def run(self) -> None:
        # Which pods a Job makes is not kept on record, so a preference of theirs takes a look.
        found = None if self._known.warm_nodes else self._as_last_seen()
        key, complete = self._job.key, False
        for _ in range(ROUNDS):
            job, warm = self._job, self._known.warm_nodes
            annotations = pod_annotations(self._submission, self._pins(), self._site)
            found = found or await self._look()
            if found is None:
                return
            if not complete:
                await self._complete(found)
                complete = True
            workload = await self._workload(found)
            pods = await self._has_pods(found)
            todo = list(
                moves(
                    job,
                    found,
                    workload,
                    pod_annotations=annotations,
                    warm_nodes=warm,
                    has_pods=pods,
                    rounds=self._site.project.requeue_rounds,
                )
            )
            if not todo:
                return
            for move in todo:
                found = found and await self._do(move, found, workload)
            again = await self._context.read(lambda state: record_of(state, key))
            self._known = again or self._known
        raise RetryLater(5.0, f"the objects of {self._job.key} do not stay as they were left")

    def _pins(self) -> tuple[PinnedInput, ...]:
        return tuple(PinnedInput.model_validate(item.body) for item in self._job.lease.inputs)

    @property
    def _job(self) -> Job:
        return self._known.job

    def _as_last_seen(self) -> Json | None:
        """Our Job as the watch showed it last: enough to act on, since a change that names an old version is refused."""
        seen = self._known.seen
        if seen is None:
            return None
        self._made.discard(self._job.key)
        if seen.gone:
            return None
        digest, version = self._latest(seen.uid) or ("", "")
        if digest != seen.digest:
            return dict(seen.body)
        return {**seen.body, "metadata": {**seen.body["metadata"], "resourceVersion": version}}

    async def _look(self) -> Json | None:
        """Our Job as it is, made when there never was one; None when there is nothing more to do here."""
        carrier = self._known.carrier
        wanted = Wanted(
            name=self._name,
            project=self._job.project,
            job=self._job.id,
            spec_sha256=self._job.spec_sha256,
            uid=carrier.uid if carrier else None,
            applied=self._job.applied is not None,
        )
        created: Reply | None = None
        if carrier is None and self._job.key not in self._made and self._job.terminal is None:
            created = await self._reply(self._create())
            if after_create(wanted, created).step == Step.ADOPT:
                return dict(created.body)
        # Not made, or made before, or nobody knows: what is there counts.
        reply = await self._reply(self._api.get(self._path))
        decision = after_look(wanted, reply)
        if decision.step == Step.CREATE:
            if self._job.terminal is not None:
                return None
            reply = created or await self._reply(self._create())
            decision = after_create(wanted, reply)
        if decision.step == Step.ADOPT:
            return dict(reply.body)
        await self._not_ours(decision, reply)
        return None

    async def _not_ours(self, decision: Decision, reply: Reply) -> None:
        """Nothing to work on: said once in the cluster's own words, tried again where that may help."""
        if decision.step == Step.GONE:
            return  # the watch says so, and what follows
        if decision.step == Step.LOOK:
            raise RetryLater(0.2, decision.message)
        reason = {Step.CONFLICT: "AlreadyExists", Step.REFUSED: "FailedCreate", Step.WAIT: "FailedCreate"}[
            decision.step
        ]
        if reply.code:
            await self._say(reason, mask(decision.message), reply.code, decision.message)
        raise RetryLater(AGAIN_S, f"{self._about}: {mask(decision.message)}")

    async def _create(self) -> Json:
        """POST once, behind its gate while its data is not ready; the rest of its objects belong to it and go with it."""
        project = self._site.project
        gate: GateKind = "suspend"
        if self._site.kueue:
            gate = await self._gates.kind(self._namespace, queue_of(self._submission.spec, project))
        body = render(self._submission, self._pins(), self._site)[0]
        made = await self._api.post(self._jobs, to_make(body, gate, self._job, self._known.warm_nodes))
        self._made.add(self._job.key)
        held = NOT_HELD if self._job.gate == "open" else HELD_BY[gate]
        await self._say("Created", f"the Job was made; {held}", made["metadata"]["uid"])
        return made

    async def _complete(self, found: Json) -> None:
        """The Job's other objects belong to it and go with it; one that is there already is left as it is."""
        if self._job.terminal is not None or self._job.applied or (self._submission.spec.nodes or 1) == 1:
            return  # one pod needs nothing beside its Job
        for item in render(self._submission, self._pins(), self._site)[1:]:
            path = f"/api/v1/namespaces/{self._namespace}/{_PLURALS[item['kind']]}"
            whole = owned(item, str(found["metadata"]["uid"]), str(found["metadata"]["name"]))
            reply = await self._reply(self._api.post(path, whole))
            if reply.code not in {200, 409}:
                await self._say("FailedCreate", f"{item['kind']}: {mask(reply.message)}", reply.code, reply.message)

    async def _has_pods(self, found: Json) -> bool:
        """Of a Job that came past the webhook: whether stopping it would end pods. Taken for granted of any other."""
        if self._job.held_by_us or self._job.terminal is not None:
            return True
        selector = f"batch.kubernetes.io/controller-uid={found['metadata']['uid']}"
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        reply = await self._reply(self._api.get(path, labelSelector=selector, limit=1))
        return reply.code != 200 or bool(reply.body.get("items"))

    async def _workload(self, found: Json) -> Json | None:
        """Kueue's Workload of a Job that no gate holds, while no quota is held: only then may we stop or release it."""
        job = self._job
        if not self._site.kueue or job.terminal is not None or any(item.holds for item in job.attempts):
            return None
        name = self._known.carrier.workload if self._known.carrier else None
        if job.held_by_us and (opening(found, {}) is not None or (name is None and job.gate_generation <= 1)):
            return None
        path = f"{KUEUE}/namespaces/{self._namespace}/workloads"
        if name is not None:
            reply = await self._reply(self._api.get(f"{path}/{name}"))
            items = [reply.body] if reply.code == 200 else []
        else:
            selector = f"kueue.x-k8s.io/job-uid={found['metadata']['uid']}"
            reply = await self._reply(self._api.get(path, labelSelector=selector))
            items = reply.body.get("items") or []
        return {"kind": "Workload", **items[-1]} if items else None

    async def _do(self, move: Move, found: Json, workload: Json | None) -> Json | None:
        """The Job afterwards; None when it has to be looked at again."""
        try:
            if move.what == "delete":
                await self._api.delete(self._path, propagation="Foreground", uid=found["metadata"]["uid"])
                found = {}
            elif move.what == "patch":
                found = await self._api.patch(self._path, move.patch)
            elif workload is not None:
                name = workload["metadata"]["name"]
                await self._api.patch(f"{KUEUE}/namespaces/{self._namespace}/workloads/{name}", move.patch)
        except ApiRefusedError as error:
            if error.status in {404, 409}:
                return None  # gone or changed meanwhile
            message = mask(error.message)
            await self._say("FailedUpdate", f"{move.why}: {message}", error.status, message)
            raise RetryLater(AGAIN_S, f"{self._about}: {message}") from error
        _log.info("%s: %s", self._job.key, move.why)
        return found or None

    async def _say(self, reason: str, message: str, *dedupe: object) -> None:
        job = self._job
        emit = said_of(
            job.project, job.id, source=SOURCE, about=self._about, reason=reason, message=message, dedupe=dedupe
        )
        await self._context.emit(emit)

    @staticmethod
    async def _reply(request: Any) -> Reply:
        """The answer as values; code 0 when there was none."""
        try:
            return Reply(code=200, body=await request)
        except ApiRefusedError as error:
            return Reply(code=error.status, body={"reason": error.reason, "message": error.message})
        except ApiSilentError as error:
            return Reply(code=0, body={"message": str(error)})

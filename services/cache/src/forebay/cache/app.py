"""The cache put together: settings, the pool that jobs read from, planner, workers, and the watch over the pool."""

from __future__ import annotations

from forebay.cache.adapters.locations import choose_between, planner_at
from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.decide import CHECK, EVICT, PLAN, WARM, Cache
from forebay.cache.domain.documents import DOCUMENTS, LOCAL_NODE
from forebay.cache.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.cache.orders import Orders
from forebay.cache.questions import Questions
from forebay.cache.settings import CacheSettings, load
from forebay.cache.workers.evict import EvictWorker
from forebay.cache.workers.plan import PlanWorker
from forebay.cache.workers.pool_watch import PoolWatch
from forebay.cache.workers.residency import CheckWorker
from forebay.cache.workers.warm import WarmWorker
from forebay.cache.workers.warming import WarmingSettings
from forebay.contracts.parts import Part
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.open_work import Slots
from forebay.runtime.work import Worker


def definition(node: str = LOCAL_NODE, budget_bytes: int | None = None) -> Service:
    """The service without anything around it; also what a rebuild folds with, which needs neither node nor budget."""
    return Service(
        part=Part.CACHE,
        fold_version=FOLD_VERSION,
        documents=DOCUMENTS,
        reads=READS,
        evolve=evolve,
        decide=Cache(node=node, budget_bytes=budget_bytes).decide,
        commands=Orders(node).table(),
        questions=Questions(node, budget_bytes).table(),
    )


def workers(settings: CacheSettings) -> dict[str, Worker]:
    """What does the long work. Fluid or a ring before object storage would be chosen here, as one more `Pool`."""
    choose = choose_between(settings.pool_kind, settings.pool_folder, settings.pool_log, settings.home)
    planner = planner_at(settings.home)
    plans, node = PlanFiles(settings.plans_folder), settings.node
    warming = WarmingSettings(parallel=settings.cache_parallel, stall_s=settings.cache_stall_s)
    return {
        PLAN: PlanWorker(planner, choose, plans, node=node),
        WARM: WarmWorker(choose, planner, plans, warming, node=node),
        CHECK: CheckWorker(choose, plans, node=node),
        EVICT: EvictWorker(choose, plans, node=node),
    }


async def run() -> None:
    """Run the service until it is told to stop."""
    settings = load()
    pool = choose_between(settings.pool_kind, settings.pool_folder, settings.pool_log, settings.home)(
        settings.pool_folder, ()
    )
    watch = PoolWatch(pool, node=settings.node, evicts_below=settings.kubelet_evicts_below)
    await run_service(
        definition(settings.node, settings.cache_budget_bytes),
        settings,
        workers(settings),
        slots={EVICT: Slots.unshared(1)},
        companions=[watch.run],
    )

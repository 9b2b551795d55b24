"""The cache put together: settings, the pool that jobs read from, planner, workers."""

from __future__ import annotations

from forebay.cache.adapters.locations import choose_between
from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.decide import CHECK, PLAN, WARM, decide
from forebay.cache.domain.documents import DOCUMENTS
from forebay.cache.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.cache.questions import QUESTIONS
from forebay.cache.settings import CacheSettings, load
from forebay.cache.workers.plan import PlanWorker
from forebay.cache.workers.residency import CheckWorker
from forebay.cache.workers.warm import WarmWorker
from forebay.cache.workers.warming import WarmingSettings
from forebay.contracts.parts import Part
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.work import Worker


def definition() -> Service:
    """The service without anything around it; also what a rebuild folds with."""
    return Service(
        part=Part.CACHE,
        fold_version=FOLD_VERSION,
        documents=DOCUMENTS,
        reads=READS,
        evolve=evolve,
        decide=decide,
        questions=QUESTIONS,
    )


def workers(settings: CacheSettings) -> dict[str, Worker]:
    """What does the long work. Fluid or a ring before object storage would be chosen here, as one more `Pool`."""
    choose = choose_between(settings.pool_kind, settings.pool_folder)
    plans = PlanFiles(settings.plans_folder)
    warming = WarmingSettings(budget_bytes=settings.cache_budget_bytes, parallel=settings.cache_parallel)
    return {
        PLAN: PlanWorker(plan_folder, choose, plans),
        WARM: WarmWorker(choose, plan_folder, plans, warming),
        CHECK: CheckWorker(choose, plans),
    }


async def run() -> None:
    """Run the service until it is told to stop."""
    settings = load()
    await run_service(definition(), settings, workers(settings))

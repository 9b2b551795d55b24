"""The bridge put together: settings, a backend, decisions, workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.contracts.parts import Part
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.scheduler_bridge.adapters import this_machine
from forebay.scheduler_bridge.adapters.local_processes import LocalProcesses, Surroundings
from forebay.scheduler_bridge.commands import command_table
from forebay.scheduler_bridge.domain.amounts import Amount
from forebay.scheduler_bridge.domain.backend import Backend
from forebay.scheduler_bridge.domain.cluster.decide import RECONCILE, ClusterBridge
from forebay.scheduler_bridge.domain.cluster.documents import CLUSTER_DOCUMENTS
from forebay.scheduler_bridge.domain.cluster.objects import PENDING, Collection
from forebay.scheduler_bridge.domain.cluster.rules import CLUSTER_RULES
from forebay.scheduler_bridge.domain.decide import LocalBridge
from forebay.scheduler_bridge.domain.documents import DOCUMENTS
from forebay.scheduler_bridge.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES
from forebay.scheduler_bridge.errors import ProjectFilesError
from forebay.scheduler_bridge.questions import Questions
from forebay.scheduler_bridge.settings import BridgeSettings, load, passed_on
from forebay.scheduler_bridge.workers.attempt import AttemptWorker, Pace


def definition(backend: Backend | None = None) -> Service:
    """The service. Folding needs no backend; without one every decision sees a machine that has nothing."""
    backend = backend or LocalBridge(total=Amount(), rules=LOCAL_RULES)
    return Service(
        part=Part.BRIDGE,
        fold_version=FOLD_VERSION,
        documents=(*DOCUMENTS, *CLUSTER_DOCUMENTS),
        reads=READS,
        evolve=evolve,
        decide=backend.decide,
        commands=command_table(backend),
        questions=Questions(backend=backend).table(),
    )


def capacity(settings: BridgeSettings) -> Amount:
    """What jobs may hold together: declared, else what the machine has."""
    cpus = settings.local_cpus if settings.local_cpus is not None else this_machine.count_cpus()
    memory = settings.local_memory_bytes if settings.local_memory_bytes is not None else this_machine.memory_bytes()
    gpus = settings.local_gpus if settings.local_gpus is not None else this_machine.count_gpus()
    return Amount(millicpus=round(cpus * 1000), memory_bytes=memory, gpus=gpus)


async def run() -> None:
    """Run the service until it is told to stop. What it has started outlives it and is adopted by the next one."""
    settings = load()
    if settings.backend == "kubernetes":
        await _on_cluster(settings)
    else:
        await _on_this_machine(settings)


async def _on_this_machine(settings: BridgeSettings) -> None:
    surroundings = Surroundings(home=settings.home.resolve(), nats_url=settings.nats_url, variables=passed_on())
    worker = AttemptWorker(LocalProcesses(surroundings), Pace(grace=settings.stop_grace_s))
    await run_service(
        definition(LocalBridge(total=capacity(settings), rules=LOCAL_RULES)),
        settings,
        {"attempt": worker},
        concurrency={"attempt": settings.local_concurrency},
    )


async def _on_cluster(settings: BridgeSettings) -> None:
    # What only a cluster needs is imported where it is used: it costs seconds.
    from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi  # noqa: PLC0415 as said above
    from forebay.scheduler_bridge.adapters.kueue_gates import KueueGates  # noqa: PLC0415 as said above
    from forebay.scheduler_bridge.adapters.list_watch import ListWatch  # noqa: PLC0415 as said above
    from forebay.scheduler_bridge.adapters.queue_positions import QueuePositions  # noqa: PLC0415 as said above
    from forebay.scheduler_bridge.workers.observe import Observer, Watcher  # noqa: PLC0415 as said above
    from forebay.scheduler_bridge.workers.reconcile import Reconciler  # noqa: PLC0415 as said above

    sites = read_sites(settings)
    async with await KubernetesApi.connect(settings.kubeconfig) as api:

        def watch(collection: Collection) -> Watcher:
            asked = collection.kind == PENDING
            return QueuePositions(api, collection.path) if asked else ListWatch(api, collection.path)

        await run_service(
            definition(ClusterBridge(rules=CLUSTER_RULES, sites=sites)),
            settings,
            {RECONCILE: Reconciler(api, sites, KueueGates(api), read_agent_keys(settings, sites))},
            concurrency={RECONCILE: settings.cluster_concurrency},
            companions=[Observer(watch)],
        )


def read_sites(settings: BridgeSettings) -> Mapping[str, Site]:
    """The cluster as each project sees it. Raises `ProjectFilesError`."""
    from forebay.scheduler_bridge.adapters.project_files import read_projects  # noqa: PLC0415 as said above

    if settings.projects is None:
        raise ProjectFilesError(["FOREBAY_PROJECTS is not set; name the folder that holds one YAML file per project"])
    agent = AgentImage(image=settings.agent_image, nats_url=settings.agent_nats_url or settings.nats_url)
    return {name: Site(project=item, agent=agent) for name, item in read_projects(settings.projects).items()}


def read_agent_keys(settings: BridgeSettings, projects: Iterable[str]) -> dict[str, str]:
    """Project -> the key that its agents speak with on the bus, of those that are there."""
    folder = settings.agent_keys
    if folder is None:
        return {}
    files = {project: folder / f"agent.{project}.nk" for project in projects}
    return {project: path.read_text() for project, path in files.items() if path.is_file()}

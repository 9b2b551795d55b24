"""The bridge put together for a cluster. Called by `app.py` when the settings name one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.runtime.app import run_service
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.adapters.kueue_gates import KueueGates
from forebay.scheduler_bridge.adapters.list_watch import ListWatch
from forebay.scheduler_bridge.adapters.project_files import read_projects
from forebay.scheduler_bridge.adapters.queue_positions import QueuePositions
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain.cluster.decide import EVICT, RECONCILE, ClusterBridge
from forebay.scheduler_bridge.domain.cluster.objects import PENDING, Collection
from forebay.scheduler_bridge.domain.cluster.rules import CLUSTER_RULES
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.errors import ProjectFilesError
from forebay.scheduler_bridge.settings import BridgeSettings
from forebay.scheduler_bridge.workers.evict_pod import PodEvictor
from forebay.scheduler_bridge.workers.observe import Observer, Watcher
from forebay.scheduler_bridge.workers.reconcile import Reconciler


async def run_on_cluster(settings: BridgeSettings) -> None:
    """Run the service until it is told to stop. Raises `ProjectFilesError`."""
    sites = read_sites(settings)
    async with await KubernetesApi.connect(settings.kubeconfig) as api:

        def watch(collection: Collection) -> Watcher:
            asked = collection.kind == PENDING
            return QueuePositions(api, collection.path) if asked else ListWatch(api, collection.path)

        await run_service(
            definition(ClusterBridge(rules=CLUSTER_RULES, sites=sites)),
            settings,
            {
                RECONCILE: Reconciler(api, sites, KueueGates(api), read_agent_keys(settings, sites)),
                EVICT: PodEvictor(api),
            },
            concurrency={RECONCILE: settings.cluster_concurrency, EVICT: settings.cluster_concurrency},
            companions=[Observer(watch, {name: site.project.namespace for name, site in sites.items()})],
        )


def read_sites(settings: BridgeSettings) -> Mapping[str, Site]:
    """The cluster as each project sees it. Raises `ProjectFilesError`."""
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

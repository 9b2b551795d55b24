"""The bridge put together for a cluster. Called by `app.py` when the settings name one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from forebay.contracts.parts import Part, Source
from forebay.runtime.app import run_service
from forebay.runtime.companion import Companion
from forebay.runtime.connection import connect
from forebay.runtime.open_work import Slots
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.adapters.kueue_gates import KueueGates
from forebay.scheduler_bridge.adapters.list_watch import ListWatch
from forebay.scheduler_bridge.adapters.project_files import read_projects
from forebay.scheduler_bridge.adapters.queue_positions import QueuePositions
from forebay.scheduler_bridge.adapters.user_jwt import Issuer
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain.adopt import adoption_of
from forebay.scheduler_bridge.domain.cluster.decide import EVICT, RECONCILE, SENTENCE, ClusterBridge
from forebay.scheduler_bridge.domain.cluster.objects import PENDING, Collection
from forebay.scheduler_bridge.domain.cluster.rules import CLUSTER_RULES
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.errors import ProjectFilesError
from forebay.scheduler_bridge.settings import BridgeSettings
from forebay.scheduler_bridge.workers import write_sentence
from forebay.scheduler_bridge.workers.admit import Doorkeeper
from forebay.scheduler_bridge.workers.evict_pod import PodEvictor
from forebay.scheduler_bridge.workers.observe import Observer, Watcher
from forebay.scheduler_bridge.workers.reconcile import Reconciler
from forebay.scheduler_bridge.workers.write_sentence import SentenceWriter


async def run_on_cluster(settings: BridgeSettings) -> None:
    """Run the service until it is told to stop. Raises `ProjectFilesError`."""
    sites = read_sites(settings)
    issuer = Issuer.read(settings.attempt_issuer) if settings.attempt_issuer else None
    namespaces = {name: site.project.namespace for name, site in sites.items()}
    async with await KubernetesApi.connect(settings.kubeconfig) as api:

        def watch(collection: Collection) -> Watcher:
            asked = collection.kind == PENDING
            return QueuePositions(api, collection.path) if asked else ListWatch(api, collection.path)

        gates = KueueGates(api)
        adopt = partial(adoption_of, sites=sites)
        observer = Observer(watch, namespaces, adopt)
        companions: list[Companion] = [observer]
        if issuer is not None:
            bus = partial(connect, settings.nats_url, Source(Part.BRIDGE), settings.nkey_file, retry=True)
            companions.append(Doorkeeper(bus, api, issuer, namespaces))
        await run_service(
            definition(ClusterBridge(rules=CLUSTER_RULES, sites=sites)),
            settings,
            {
                RECONCILE: Reconciler(api, sites, gates, observer.latest),
                EVICT: PodEvictor(api),
                SENTENCE: SentenceWriter(api),
            },
            slots={
                RECONCILE: Slots.shared(settings.cluster_concurrency),
                EVICT: Slots.shared(settings.cluster_concurrency),
                SENTENCE: Slots.shared(write_sentence.AT_ONCE),
            },
            companions=companions,
        )


def read_sites(settings: BridgeSettings) -> Mapping[str, Site]:
    """The cluster as each project sees it. Raises `ProjectFilesError`."""
    if settings.projects is None:
        raise ProjectFilesError(["FOREBAY_PROJECTS is not set; name the folder that holds one YAML file per project"])
    agent = AgentImage(image=settings.agent_image, nats_url=settings.agent_nats_url or settings.nats_url)
    return {name: Site(project=item, agent=agent) for name, item in read_projects(settings.projects).items()}

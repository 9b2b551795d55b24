"""The webhook put together: a process of its own, without a store, a bus or a log, so that any number of them may run.

`python -m forebay.scheduler_bridge.webhook`. While the bridge is away or reads, Jobs are
still gated; while a webhook is away another one answers (ADR 0008).
"""

from __future__ import annotations

import contextlib

from forebay.runtime import health_server
from forebay.runtime.errors import SettingsError
from forebay.runtime.health import Health
from forebay.runtime.log_lines import log_to_stderr
from forebay.scheduler_bridge.adapters.admission_server import AdmissionServer
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.adapters.kueue_gates import WEBHOOK_PROBE, KueueGates
from forebay.scheduler_bridge.cluster_app import read_sites
from forebay.scheduler_bridge.settings import load


async def run() -> None:
    """Answer until cancelled. Raises `SettingsError`."""
    settings = load()
    log_to_stderr(settings.log_level, "%(asctime)s %(levelname)s %(name)s %(message)s")
    if settings.webhook_tls is None:
        msg = "FOREBAY_WEBHOOK_TLS is not set; name the folder that holds tls.crt and tls.key"
        raise SettingsError(msg)
    sites = read_sites(settings)
    health = Health("scheduler-bridge-webhook")
    with contextlib.ExitStack() as stack:
        if settings.health_port:
            stack.callback(health_server.serve(health, settings.health_address, settings.health_port))
        async with await KubernetesApi.connect(settings.kubeconfig) as api:
            gates = KueueGates(api, probe=WEBHOOK_PROBE)
            health.phase, health.caught_up = "running", True
            await AdmissionServer(sites, gates, settings.webhook_tls, settings.webhook_port)(health)

"""Objects of a cluster as plain dictionaries, for tests: create, read, change, delete, by kind and name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientTimeout
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.api_client import ApiClient

from forebay.testcluster.errors import ClusterError

Json = dict[str, Any]
_PLACES: Mapping[str, tuple[str, str]] = {
    "ConfigMap": ("v1", "configmaps"),
    "Event": ("v1", "events"),
    "LimitRange": ("v1", "limitranges"),
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "PersistentVolume": ("v1", "persistentvolumes"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Pod": ("v1", "pods"),
    "ResourceQuota": ("v1", "resourcequotas"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "Deployment": ("apps/v1", "deployments"),
    "Job": ("batch/v1", "jobs"),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses"),
    "AdmissionCheck": ("kueue.x-k8s.io/v1beta2", "admissionchecks"),
    "ClusterQueue": ("kueue.x-k8s.io/v1beta2", "clusterqueues"),
    "LocalQueue": ("kueue.x-k8s.io/v1beta2", "localqueues"),
    "ResourceFlavor": ("kueue.x-k8s.io/v1beta2", "resourceflavors"),
    "Workload": ("kueue.x-k8s.io/v1beta2", "workloads"),
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
}
_NOT_FOUND = 404


def path_of(kind: str, namespace: str | None, name: str | None = None, *, part: str = "") -> str:
    """The path of a kind in a namespace (None: of the whole cluster), of one object of it, or of its part."""
    version, plural = _PLACES[kind]
    root = f"/{'api' if version == 'v1' else 'apis'}/{version}"
    place = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
    return "/".join([place, *([name] if name else []), *([part] if part else [])])


class RequestError(ClusterError):
    """The API server said no."""

    def __init__(self, status: int, body: Json, what: str) -> None:
        super().__init__(f"{what}: {status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status
        self.body = body


class Api:
    """Requests to one API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, kubeconfig: Path) -> AsyncIterator[Api]:
        configuration = Configuration()
        await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        async with ApiClient(configuration) as client:
            yield cls(client)

    async def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> str:
        """The text of the answer. Raises `RequestError`."""
        headers = {"Content-Type": content_type, "Accept": "application/json, */*"}
        answer = await self._client.call_api(
            path, method, header_params=headers, body=body, auth_settings=["BearerToken"], _preload_content=False
        )
        async with answer:
            text: str = await answer.text()
        if answer.status >= 300:
            try:
                refusal = json.loads(text)
            except ValueError:
                refusal = {"message": text}
            raise RequestError(answer.status, refusal, f"{method} {path}")
        return text

    async def json(self, method: str, path: str, body: Any = None, **options: str) -> Json:
        found: Json = json.loads(await self.request(method, path, body, **options))
        return found

    async def create(self, item: Json) -> Json:
        """Make one object of a kind named in this module, in the namespace that it names."""
        kind = item["kind"]
        full = {"apiVersion": _PLACES[kind][0], **item}
        return await self.json("POST", path_of(kind, full["metadata"].get("namespace")), full)

    async def get(self, kind: str, namespace: str | None, name: str) -> Json | None:
        """The object, or None when there is none."""
        try:
            return await self.json("GET", path_of(kind, namespace, name))
        except RequestError as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise

    async def items(self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "") -> list[Json]:
        query = "&".join(
            f"{key}={value}" for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value
        )
        found = await self.json("GET", path_of(kind, namespace) + (f"?{query}" if query else ""))
        return [{"kind": kind, **item} for item in found["items"]]

    async def patch(self, kind: str, namespace: str | None, name: str, change: Json, *, part: str = "") -> Json:
        """A merge patch: a None removes a field. `part` is a subresource, such as status."""
        where = path_of(kind, namespace, name, part=part)
        return await self.json("PATCH", where, change, content_type="application/merge-patch+json")

    async def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Delete it and what depends on it; fine when there is none."""
        try:
            await self.json("DELETE", path_of(kind, namespace, name), {"propagationPolicy": "Background"})
        except RequestError as refused:
            if refused.status != _NOT_FOUND:
                raise

    async def watch(self, kind: str, namespace: str | None, version: str) -> AsyncIterator[Json]:
        """Changes of a kind since a resourceVersion (`type` and `object`), until the server ends the watch."""
        query = f"?watch=1&resourceVersion={version}&allowWatchBookmarks=true"
        answer = await self._client.call_api(
            path_of(kind, namespace) + query,
            "GET",
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=ClientTimeout(total=None),
        )
        async with answer:
            async for line in answer.content:
                yield json.loads(line)

    async def log(self, namespace: str, pod: str, container: str = "") -> str:
        query = f"?container={container}" if container else ""
        return await self.request("GET", path_of("Pod", namespace, pod, part="log") + query)

    async def pods_of(self, namespace: str, job: str) -> list[Json]:
        return await self.items("Pod", namespace, labels=f"batch.kubernetes.io/job-name={job}")

    async def workload_of(self, namespace: str, job: str) -> Json | None:
        """Kueue's Workload of a Job."""
        owner = await self.get("Job", namespace, job)
        if owner is None:
            return None
        found = await self.items("Workload", namespace, labels=f"kueue.x-k8s.io/job-uid={owner['metadata']['uid']}")
        return found[0] if found else None

    async def events_of(self, namespace: str, name: str) -> list[Json]:
        return await self.items("Event", namespace, fields=f"involvedObject.name={name}")

    async def delete_namespace(self, namespace: str, *, within: float = 60) -> None:
        """Returns when it is gone, with all that was in it."""
        async with asyncio.timeout(within):
            await self.delete("Namespace", None, namespace)
            while await self.get("Namespace", None, namespace) is not None:
                await asyncio.sleep(0.1)


def condition(item: Json, kind: str) -> Json | None:
    """One condition of an object's status."""
    return next((one for one in item.get("status", {}).get("conditions", []) if one["type"] == kind), None)


def is_true(item: Json | None, kind: str) -> bool:
    found = condition(item, kind) if item is not None else None
    return found is not None and found["status"] == "True"

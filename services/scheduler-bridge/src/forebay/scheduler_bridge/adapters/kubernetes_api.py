"""The Kubernetes API as plain JSON: one request, or one watch that is read line by line.

Credentials, TLS and token refresh are kubernetes-asyncio's; its typed models are not
used, because a watch of thousands of objects spends its time building them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml

from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError, ClusterUnknownError

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
"""A null removes a field; the resourceVersion inside makes it a compare-and-set."""
REQUEST_S = 20.0
_UNDECIDED = frozenset({500, 502, 503, 504})
"""Whether a write took place behind one of these is not known."""


class KubernetesApi:
    """One connection pool to one API server."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Self:
        """With a kubeconfig file, else with the service account of the pod this runs in. Raises `ClusterUnknownError`."""
        # Only the Kubernetes backend pays for these seconds of import.
        from kubernetes_asyncio import config  # noqa: PLC0415 slow to import
        from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 slow to import
        from kubernetes_asyncio.client.api_client import ApiClient  # noqa: PLC0415 slow to import

        configuration = Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        except (config.ConfigException, OSError, yaml.YAMLError) as error:
            where = "this is no pod with a service account" if kubeconfig is None else f"{kubeconfig} cannot be used"
            msg = f"no cluster: {where} ({error}); set FOREBAY_KUBECONFIG to a kubeconfig file"
            raise ClusterUnknownError(msg) from error
        return cls(ApiClient(configuration))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, path: str, **query: str | int) -> Json:
        return await self._ask("GET", path, query=query)

    async def post(self, path: str, body: Json, **query: str | int) -> Json:
        """Create. `ApiSilentError`: it may have been created; look before anything else."""
        return await self._ask("POST", path, body=body, query=query)

    async def patch(self, path: str, body: Json, *, content_type: str = MERGE) -> Json:
        return await self._ask("PATCH", path, body=body, content_type=content_type)

    async def delete(self, path: str, *, propagation: str = "Background", uid: str | None = None) -> Json:
        """Delete, with its dependants; with `uid` only that very object."""
        body: Json = {"propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        return await self._ask("DELETE", path, body=body)

    async def watch(self, path: str, *, query: Mapping[str, str | int], silence_s: float) -> AsyncIterator[Json]:
        """Lines of a watch as they come, until the server ends it. `ApiSilentError` after `silence_s` without any."""
        from aiohttp import ClientTimeout  # noqa: PLC0415 comes with kubernetes-asyncio

        timeout = ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=silence_s)
        response = await self._send("GET", path, query={**query, "watch": "1"}, timeout=timeout)
        try:
            with _silence(path):
                if response.status >= 300:
                    raise _refusal(path, response.status, await response.read())
                async for line in response.content:
                    if line.strip():
                        yield msgspec.json.decode(line)
        finally:
            response.close()

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str | int] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        response = await self._send(
            method, path, body=body, query=query or {}, content_type=content_type, timeout=REQUEST_S
        )
        with _silence(path):
            content = await response.read()
        if response.status in _UNDECIDED and method != "GET":
            msg = f"{method} {path}: the API server answered {response.status}"
            raise ApiSilentError(msg)
        if response.status >= 300:
            raise _refusal(path, response.status, content)
        try:
            answer: Json = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError as error:
            msg = f"{method} {path}: the answer is not JSON: {error}"
            raise ApiSilentError(msg) from error
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int],
        timeout: object,  # noqa: ASYNC109 passed on to aiohttp
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Any:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        with _silence(path):
            return await self._client.call_api(
                path,
                method,
                query_params=[(name, str(value)) for name, value in query.items()],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=timeout,
            )


@contextlib.contextmanager
def _silence(path: str) -> Any:
    """What the network does to a request, in one word: no answer."""
    from aiohttp import ClientError  # noqa: PLC0415 comes with kubernetes-asyncio

    try:
        yield
    except (TimeoutError, ClientError, OSError) as error:
        cause = str(error) or type(error).__name__
        msg = f"{path}: no answer from the API server: {cause}"
        raise ApiSilentError(msg) from error


def _refusal(path: str, status: int, content: bytes) -> ApiRefusedError:
    """The server's own words; it answers with a Status object, a proxy before it with anything."""
    try:
        said = msgspec.json.decode(content)
    except msgspec.DecodeError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = str(said.get("message") or content[:300].decode(errors="replace"))
    return ApiRefusedError(path=path, status=status, reason=str(said.get("reason") or status), message=message)

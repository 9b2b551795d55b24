"""The digest of a stored state: what a live service and its rebuild must agree on."""

from __future__ import annotations

import asyncio

from forebay.runtime.documents import Digest, digested
from forebay.runtime.machine import Service
from forebay.runtime.stores.port import Store


async def store_digest(store: Store, service: Service) -> Digest:
    """The digest over every document of a service that counts."""
    digest = Digest()
    for kind in digested(service.documents):
        after = ""
        while rows := await store.page(kind, after=after, limit=2000):
            digest.add(kind, rows)
            after = rows[-1][0]
            await asyncio.sleep(0)
    return digest

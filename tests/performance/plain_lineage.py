"""The baseline of `bench_registry`: edges in one SQLite table and recursive queries over them.

It keeps who came from whom and nothing else: no facts per field, no events behind an
edge, no contradictions, no windows, no repeated ids. An edge for each episode of each version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from forebay.contracts.body import EventBody
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.runtime.log import LogMessage

_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-262144;
CREATE TABLE edges (above TEXT NOT NULL, below TEXT NOT NULL, PRIMARY KEY (above, below)) WITHOUT ROWID;
CREATE INDEX upwards ON edges (below, above);
CREATE TABLE evaluated (model TEXT PRIMARY KEY);
"""
_DOWN = """
WITH RECURSIVE reached(id) AS (VALUES(?) UNION SELECT below FROM edges JOIN reached ON above = id)
SELECT id FROM reached
"""
_UP = """
WITH RECURSIVE reached(id) AS (VALUES(?) UNION SELECT above FROM edges JOIN reached ON below = id)
SELECT id FROM reached
"""
_UNEVALUATED = """
SELECT DISTINCT below FROM edges WHERE below LIKE 'model:%' AND below NOT IN (SELECT model FROM evaluated) LIMIT 100
"""


class PlainLineage:
    """One file of edges."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript(_SCHEMA)

    async def fold(
        self, log: AsyncIterator[Sequence[LogMessage]], progress: Callable[[int], None] | None = None
    ) -> int:
        """Every event decoded, its edges written, a transaction per batch."""
        count = 0
        async for batch in log:
            self._db.execute("BEGIN")
            for message in batch:
                body = message.decode().body
                self._db.executemany("INSERT OR IGNORE INTO edges VALUES (?, ?)", list(_edges(body)))
                if isinstance(body, models.EvaluationRecorded):
                    self._db.execute(
                        "INSERT OR IGNORE INTO evaluated VALUES (?)", (f"model:{body.model}@v{body.number}",)
                    )
            self._db.execute("COMMIT")
            count += len(batch)
            if progress is not None:
                progress(count)
        return count

    def impact(self, node: str) -> list[str]:
        return [row[0] for row in self._db.execute(_DOWN, (node,))]

    def lineage(self, node: str) -> list[str]:
        return [row[0] for row in self._db.execute(_UP, (node,))]

    def unevaluated(self) -> list[str]:
        return [row[0] for row in self._db.execute(_UNEVALUATED)]

    def close(self) -> None:
        self._db.close()


def _edges(body: EventBody) -> Iterator[tuple[str, str]]:
    match body:
        case episodes.EpisodeUploaded():
            yield f"upload:{body.upload}", f"episode:{body.episode}"
        case datasets.DatasetVersionCommitted():
            version = f"dataset:{body.dataset}@v{body.number}"
            with Path(body.episodes.uri).open("rb") as file:
                for row in msgspec.json.decode(file.read())["episodes"]:
                    yield f"episode:{row['episode']}", version
        case datasets.LeaseGranted():
            for one in body.inputs:
                yield f"dataset:{one.name}@v{one.number}", f"job:{body.job}"
        case jobs.AttemptStarted():
            yield f"job:{body.job}", f"attempt:{body.job}/{body.attempt}"
        case models.CheckpointWritten():
            yield f"job:{body.job}", f"checkpoint:{body.checkpoint}"
        case models.ModelVersionRegistered():
            yield f"checkpoint:{body.checkpoint}", f"model:{body.model}@v{body.number}"
        case _:
            return

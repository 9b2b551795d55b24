"""Turns complete saves into CheckpointWritten, each once for the whole job. Used by the agent, on a machine and in a pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from forebay.contracts.body import EventBody
from forebay.contracts.identifiers import stable_id
from forebay.contracts.v1.models import CheckpointWritten, Compatibility
from forebay.sdk.attempt_files import AttemptFolder
from forebay.sdk.checkpoints import CheckpointWatcher, Save, Unfinished

_log = logging.getLogger(__name__)
Say = Callable[..., None]
"""`say(body, *identity)` hands an event to the outbox."""


class SaveAnnouncer:
    """Looks at one folder of saves and says what is new in it."""

    def __init__(
        self,
        watcher: CheckpointWatcher,
        files: AttemptFolder,
        job: str,
        say: Say,
        *,
        uri_of: Callable[[Path], str] = lambda folder: folder.resolve().as_uri(),
    ) -> None:
        self._watcher = watcher
        self._files = files
        self._job = job
        self._say: Callable[..., None] = say
        self._uri_of = uri_of
        self.compatibility = Compatibility()
        """What saves are made with; known once the inputs are."""

    async def announce(self, attempt: int, *, final: bool = False) -> None:
        """Hand complete saves to the outbox."""
        found = await asyncio.to_thread(lambda: list(self._watcher.scan(final=final)))
        if not found:
            return
        announced = self._files.announced()
        for save in found:
            if isinstance(save, Unfinished):
                _log.warning("%s is no complete checkpoint: %s", save.folder.name, save.reason)
            elif (save.folder.name, save.digest) not in announced:
                self._tell(save, attempt)

    def _tell(self, save: Save, attempt: int) -> None:
        checkpoint = "ck-" + stable_id(self._job, attempt, save.step, save.digest)[:24]
        traits = {"optimizer": save.optimizer, "scheduler": save.scheduler, "rng": save.rng}
        body: EventBody = CheckpointWritten(
            checkpoint=checkpoint,
            job=self._job,
            attempt=attempt,
            step=save.step,
            uri=self._uri_of(save.folder),
            files=save.files,
            digest=save.digest,
            compatibility=self.compatibility.model_copy(update=traits),
            metrics=dict(save.metrics),
        )
        self._say(body, checkpoint)
        self._files.announce(save.folder.name, save.digest)
        _log.info("checkpoint %s: step %d, %d files", checkpoint, save.step, len(save.files))

"""Asks the registry where an attempt continues, and waits for an answer that can be trusted.

Training recovery is decided there, from checkpoints that were verified; the agent
only carries the answer to the command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.machine import READ_UP_TO
from forebay.sdk.checkpoints import Save, inspect, may_be_save
from forebay.sdk.inputs import Inputs, local_path
from forebay.sdk.link import BusLink
from forebay.sdk.settings import JobSettings

_log = logging.getLogger(__name__)
_PENDING = "verification-pending"
_PAUSE_S = 0.5
_REGISTRY = "registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where the attempt continues, with the reasons."""

    mode: str
    reasons: tuple[str, ...] = ()
    uri: str | None = None
    step: int | None = None
    answered: bool = True
    """False: nobody could be asked."""

    def environment(self) -> dict[str, str]:
        """What the command is told."""
        if self.uri is None:
            return {}
        if self.mode == "warm-start":  # its weights only: the step, the optimizer and the data order begin anew
            return {"FOREBAY_WARM_START_FROM": str(local_path(self.uri))}
        return {"FOREBAY_RESUME_FROM": str(local_path(self.uri)), "FOREBAY_RESUME_STEP": str(self.step)}


async def ask_resume_point(link: BusLink, settings: JobSettings, inputs: Inputs) -> ResumePoint:
    """Ask until there is an answer.

    A checkpoint that is still being verified is waited for, then passed over. When
    nobody answers, a first attempt without any save starts anyway, because only one
    answer is possible; a restart waits, because guessing could throw work away.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    args: dict[str, Any] = {
        "job": settings.job,
        "attempt": settings.attempt,
        "allow_cold_start": inputs.allow_cold_start,
        "forbid_cold_start": inputs.forbid_cold_start,
        "compatibility": inputs.compatibility.model_dump(mode="json", exclude_none=True),
        "skip_unverified": False,
        READ_UP_TO: link.outbox.last_seq,  # saves that were announced a moment ago count
    }
    said = False
    while True:
        waited = loop.time() - started
        try:
            return _point((await link.ask(_REGISTRY, "resume-point", args)).result)
        except Refused as refused:
            if refused.code == _PENDING:
                args["skip_unverified"] = waited > settings.verify_deadline_s
            elif refused.code not in {"catching-up", "not-stored-yet"}:
                return ResumePoint(mode="refused", reasons=(refused.message,))
            if waited > settings.verify_deadline_s + settings.resume_deadline_s:
                return ResumePoint(mode="refused", reasons=(refused.message,))
        except Unreachable as error:
            if settings.attempt == 1 and not _has_saves(settings) and waited > settings.bus_deadline_s / 4:
                return ResumePoint(mode="cold", reasons=(f"first attempt without any checkpoint ({error.message})",))
            if waited > settings.resume_deadline_s:
                message = f"nobody said where to continue for {waited:.0f} s: {error.message}"
                return ResumePoint(mode="refused", reasons=(message,), answered=False)
            if not said:
                _log.warning("%s; waiting up to %.0f s", error.message, settings.resume_deadline_s)
                said = True
        await asyncio.sleep(_PAUSE_S)


def _has_saves(settings: JobSettings) -> bool:
    root = settings.output / "checkpoints"
    return root.is_dir() and any(isinstance(inspect(path), Save) for path in root.iterdir() if may_be_save(path))


def _point(result: Mapping[str, Any]) -> ResumePoint:
    return ResumePoint(
        mode=str(result["mode"]),
        reasons=tuple(str(reason) for reason in result.get("reasons", ())),
        uri=result.get("uri"),
        step=result.get("step"),
    )

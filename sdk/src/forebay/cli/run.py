"""`forebay run -- CMD`: the in-pod agent around one training command."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from forebay.runtime.log_lines import log_to_stderr


def register(app: typer.Typer) -> None:
    """Add the command."""
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    example = "Example, in a job's container: forebay run -- python train.py --steps 1000"
    app.command("run", context_settings=settings, epilog=example)(run)


def run(
    command: Annotated[list[str], typer.Argument(help="The training command and its arguments, after `--`.")],
) -> None:
    """Check the surroundings, ask where to continue, start the command, announce its checkpoints.

    Works only inside an attempt that the scheduler started. The exit code is that of
    the command; 75 when another agent has this attempt, 78 when the command was not started.
    """
    from forebay.runtime.settings import environment  # noqa: PLC0415 help must not pay for it
    from forebay.sdk.agent import run_agent  # noqa: PLC0415
    from forebay.sdk.errors import OutsideJobError  # noqa: PLC0415
    from forebay.sdk.settings import inside_job, job_settings  # noqa: PLC0415

    if not inside_job():
        msg = "`forebay run` stands beside a training command inside a job, and this is not inside a job"
        raise OutsideJobError(msg, "describe the command in a job file and start it with: forebay submit JOB.yaml")
    log_to_stderr(logging.INFO, "forebay: %(message)s")
    raise typer.Exit(asyncio.run(run_agent(job_settings(), command, environment())))

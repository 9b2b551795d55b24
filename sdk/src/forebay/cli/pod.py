"""`forebay pod prepare|watch`: our two containers in a training pod."""

from __future__ import annotations

import asyncio
import logging

import typer

from forebay.runtime.log_lines import log_to_stderr

_EPILOG = "Example, in a pod's init container: forebay pod prepare"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    pod = typer.Typer(no_args_is_help=True, help="Inside a training pod: check before the start, watch beside it.")
    pod.command("prepare", epilog=_EPILOG)(prepare)
    pod.command("watch", epilog="Example, in a pod's side-car: forebay pod watch")(watch)
    app.add_typer(pod, name="pod")


def prepare() -> None:
    """Check the place, ask where to continue, leave the shim. Exit code 0, or 200 to 219 for what is wrong."""
    from forebay.sdk.pod import prepare as run  # noqa: PLC0415 help must not pay for it
    from forebay.sdk.pod_checks import CHECKS_BROKE  # noqa: PLC0415
    from forebay.sdk.settings import pod_settings  # noqa: PLC0415

    log_to_stderr(logging.INFO, "forebay: %(message)s")
    try:
        code = asyncio.run(run(pod_settings()))
    except Exception:
        logging.getLogger(__name__).exception("the checks broke")
        code = CHECKS_BROKE
    raise typer.Exit(code)


def watch() -> None:
    """Announce complete checkpoints until the pod ends."""
    from forebay.sdk.pod import watch as run  # noqa: PLC0415 help must not pay for it
    from forebay.sdk.settings import pod_settings  # noqa: PLC0415

    log_to_stderr(logging.INFO, "forebay: %(message)s")
    raise typer.Exit(asyncio.run(run(pod_settings())))

"""The command line's entry: finds the command, runs it, turns every error into words and an exit code.

Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 something it needs is not reachable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from forebay.cli.catalogue import PROVIDERS, Provider, installed
from forebay.runtime.terminal import console, print_json, print_line

NO, WRONG_USE, UNREACHABLE = 1, 2, 3
_HELP = """Robot-learning data, ready before the GPUs start.

First steps: forebay up · forebay upload FOLDER --dataset NAME · forebay submit JOB.yaml · forebay why JOB
"""


class Commands(TyperGroup):
    """The root command; loads what is behind a name only when that name is called."""

    def __init__(self) -> None:
        super().__init__(name="forebay", help=_HELP, no_args_is_help=True)
        self._foreign: Mapping[str, EntryPoint] | None = None
        self._broken: dict[str, str] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 the framework's signature
        names = [name for provider in self._available() for name in provider.commands]
        return sorted({*names, *self._unlisted()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """A stand-in with the one-line help: listing must not import anything."""
        for provider in self._available():
            if cmd_name in provider.commands:
                text = provider.commands[cmd_name]
                return TyperCommand(name=cmd_name, callback=_nothing, help=text, rich_help_panel=provider.panel)
        return self._unlisted().get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The real command; its provider is imported now."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            provider = next((one for one in self._available() if name in one.commands), None)
            if provider is not None:
                command = self._load(provider).get(name, command)
        return name, command, rest

    def _entry_points(self) -> Mapping[str, EntryPoint]:
        if self._foreign is None:
            self._foreign = installed()
        return self._foreign

    def _available(self) -> list[Provider]:
        return [one for one in PROVIDERS if one.module is not None or one.name in self._entry_points()]

    def _load(self, provider: Provider) -> Mapping[str, Any]:
        if provider.module is not None:
            return _registered(import_module(provider.module).register)
        return _registered(self._entry_points()[provider.name].load())

    def _unlisted(self) -> Mapping[str, Any]:
        """Commands of packages that the catalogue does not know; one that fails harms no other."""
        known = {provider.name for provider in PROVIDERS if provider.module is None}
        found: dict[str, Any] = {}
        for name, point in self._entry_points().items():
            if name in known or name in self._broken:
                continue
            try:
                found |= _registered(point.load())
            except Exception as error:  # noqa: BLE001 a stranger's package must not take the whole command line down
                self._broken[name] = f"{type(error).__name__}: {error}"
                why = f"forebay: commands of {point.value} are not available ({self._broken[name]})"
                print_line(why, stderr=True)
        return found


def _nothing() -> None:
    """Stand-ins are listed, never called."""


def _registered(register: Callable[[typer.Typer], None]) -> dict[str, Any]:
    app = typer.Typer()
    app.callback()(_nothing)
    register(app)
    return dict(get_group(app).commands)


def run(args: Sequence[str]) -> int:
    """Run one command; returns the exit code and never raises for what a person can mend."""
    try:
        result = Commands().main(args=list(args), prog_name="forebay", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return NO
    except Exception as error:  # noqa: BLE001 the process edge: every error becomes words
        return _explain(error, as_json=_wants_json(args))
    return result if isinstance(result, int) else 0


def _wants_json(args: Sequence[str]) -> bool:
    ours = args[: args.index("--")] if "--" in args else args
    return "--json" in ours


def _explain(error: Exception, *, as_json: bool) -> int:
    """What happened, to what, what to do next."""
    code, exit_code, next_action = _judge(error)
    if hasattr(error, "format_message"):
        message = str(error.format_message()).strip()
    else:
        message = getattr(error, "message", None) or str(error) or type(error).__name__
    if as_json:
        details = getattr(error, "details", None) or {}
        body = {"code": code, "message": message, "next_action": next_action, "details": details}
        print_json({"ok": False, "error": body})
    elif message:  # empty when the help was printed instead of an answer
        _show(message, next_action)
    return exit_code


def _judge(error: Exception) -> tuple[str, int, str]:
    """(code, exit code, what to do next)."""
    from forebay.contracts.errors import ContractError  # noqa: PLC0415 only when something failed
    from forebay.runtime.errors import Refused, SettingsError, Unreachable  # noqa: PLC0415
    from forebay.sdk.errors import ForebayError, OutsideJobError  # noqa: PLC0415

    table: tuple[tuple[type[Exception], str, int, str], ...] = (
        (Unreachable, "unreachable", UNREACHABLE, ""),
        (Refused, "refused", NO, ""),
        (OutsideJobError, "outside-a-job", WRONG_USE, ""),
        (ForebayError, "error", NO, ""),
        (ContractError, "bad-name", WRONG_USE, ""),
        (SettingsError, "bad-settings", WRONG_USE, "correct the FOREBAY_… variables"),
    )
    from forebay.runtime.disk_room import is_disk_full  # noqa: PLC0415

    said = str(getattr(error, "next_action", "") or "")
    for kind, code, exit_code, advice in table:
        if isinstance(error, kind):
            return str(getattr(error, "code", code)), exit_code, said or advice
    if hasattr(error, "format_message"):
        return "usage", WRONG_USE, "see: forebay --help"
    if is_disk_full(error):
        return "disk-full", UNREACHABLE, "free space on that disk, then run the same command again; see: forebay status"
    defect = f"this is a defect ({type(error).__name__}); please report it with the command you ran"
    return ("aborted", NO, "") if type(error).__name__ == "Abort" else ("internal", NO, defect)


def _show(message: str, next_action: str) -> None:
    from rich.markup import escape  # noqa: PLC0415

    err = console(stderr=True)
    err.print(f"[bold red]✗[/] {escape(message)}")
    if next_action:
        err.print(f"  [dim]next:[/] {escape(next_action)}")


def main() -> None:
    """Console script `forebay`."""
    sys.exit(run(sys.argv[1:]))

"""`forebay model fetch`: the kept files of a model version, verified and switched in at once; and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlparse

import typer
from rich.markup import escape

from forebay.cli.output import AsJson, Project, console, print_json
from forebay.cli.place import Place, find_place
from forebay.runtime.terminal import print_line

if TYPE_CHECKING:
    from typing import BinaryIO

    from forebay.runtime.file_delivery import Delivered, WantedFile

_KEPT_WITHIN_S = 3600.0
"""How long a registration waits for its files; keeping goes on without it."""
_SILENT_S = 3.0
_PAUSE_S = 0.3


def fetch(
    model: Annotated[str, typer.Argument(metavar="MODEL@CHANNEL", help="NAME@production, NAME@v3, or NAME (latest).")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go: new, empty, or fetched before.")],
    *,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Put the files of a model version into a folder, every byte compared with its recorded digest.

    Files are staged beside DIR and take its place in one step, so DIR never holds half a model. Run it again to
    go on after an interruption, or to bring DIR to what the channel names now. Needs access to the model store.
    """
    place = find_place(project)
    about = place.ask("registry", "model-files", _args(model))
    done = _deliver(about, folder)
    found = {name: about[name] for name in ("model", "number", "artefact_sha256")}
    found |= {"folder": str(folder.absolute()), "files": len(about["files"]), "already": done.already}
    found |= {"copied_bytes": done.copied_bytes, "resumed_bytes": done.resumed_bytes}
    if as_json:
        print_json(found)
        return
    from forebay.runtime.disk_room import bytes_in_words  # noqa: PLC0415 help must not pay for it

    name = f"[bold]{escape(about['model'])}@v{about['number']}[/]"
    if done.already:
        console().print(f"{name} is in {escape(str(folder))} already; {len(about['files'])} files verified")
        return
    resumed = f", {bytes_in_words(done.resumed_bytes)} were staged before" if done.resumed_bytes else ""
    console().print(
        f"{name} → {escape(str(folder))}: {len(about['files'])} files, {bytes_in_words(done.copied_bytes)} copied{resumed};"
        f" verified, artefact {about['artefact_sha256'][:12]}"
    )


def _args(model: str) -> dict[str, Any]:
    from forebay.contracts.identifiers import version_number  # noqa: PLC0415 help must not pay for it

    name, _, selector = model.partition("@")
    number = version_number(selector)
    return {"model": model} if number is None else {"model": name, "number": number}


def _deliver(about: Mapping[str, Any], folder: Path) -> Delivered:
    """Raises `ForebayError` when the folder is left as it is."""
    from forebay.runtime.file_delivery import DeliveryError, WantedFile, deliver, object_path  # noqa: PLC0415 as above
    from forebay.runtime.regular_files import open_regular  # noqa: PLC0415
    from forebay.sdk.errors import ForebayError  # noqa: PLC0415

    version = f"{about['model']}@v{about['number']}"
    if not about["kept"]:
        why = about["problem"] or "they are being copied into the model store"
        msg = f"the files of {version} are not kept: {why}"
        raise ForebayError(msg, "run the same command again in a moment, or register the checkpoint again")
    objects = Path(unquote(urlparse(about["store"]).path))
    files = [WantedFile(one["path"], one["sha256"], one["bytes"]) for one in about["files"]]

    def source(one: WantedFile) -> BinaryIO:
        try:
            return open_regular(object_path(objects, one.sha256), links=False)
        except OSError as error:
            msg = f"{one.path} of {version} cannot be read from the model store {objects}: {error.strerror}"
            raise DeliveryError(msg, "run this where the store is mounted, or: forebay audit " + version) from error

    record = {name: about[name] for name in ("model", "number", "artefact_sha256", "files")}
    try:
        return deliver(files, source, folder, record=record)
    except DeliveryError as error:
        msg = f"{version} was not put into {folder}: {error.message}"
        raise ForebayError(msg, error.next_action) from error
    except OSError as error:
        msg = f"{version} was not put into {folder}: {error.strerror or error}"
        raise ForebayError(msg, "make room or choose another folder, then run the same command again") from error


def wait_until_kept(place: Place, model: str, number: int) -> dict[str, Any]:
    """What the registry says of the files once they are kept, or cannot be. Keeping goes on if this is interrupted."""
    begun = time.monotonic()
    end, said = begun + _KEPT_WITHIN_S, False
    while True:
        found = dict(place.ask("registry", "model-files", {"model": model, "number": number}))
        if found["kept"] or found["problem"] or not found["files"] or time.monotonic() > end:
            return found
        if not said and time.monotonic() > begun + _SILENT_S:
            print_line(f"{model}@v{number}: its files are being copied into the model store …", stderr=True)
            said = True
        time.sleep(_PAUSE_S)

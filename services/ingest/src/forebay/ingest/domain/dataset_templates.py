"""data_path and video_path of info.json as templates, or breaches that say what is wrong with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.path_template import (
    PathTemplate,
    TemplateError,
    default_data_path,
    fields_of,
    parse_template,
)
from forebay.ingest.domain.recording import Info


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Where a dataset's files lie."""

    data: PathTemplate
    video: PathTemplate | None
    """None: there are no videos, or nothing says where."""
    breaches: list[Breach]
    guessed: bool
    """data_path cannot be used, so the format's own is: the other checks go on."""


def templates_of(info: Info, files: Collection[str]) -> Templates:
    """Read both templates; `files` are what lies in the folder."""
    data_fields, video_fields = fields_of(info.version)
    found: list[Breach] = []

    def read(name: str, text: str | None, allowed: frozenset[str]) -> PathTemplate | None:
        try:
            return None if text is None else parse_template(text, allowed, info.version)
        except TemplateError as error:
            folder = name.split("_", maxsplit=1)[0]
            there = sum(file.startswith(folder) for file in files)
            found.append(
                Breach(
                    rule=rules.TEMPLATE,
                    feature=name,
                    file=INFO_FILE,
                    expected=f"a template of LeRobot {info.version} inside the folder",
                    found=str(text),
                    message=f"{name} {str(text)[:200]!r}: {error}; it resolves to no file, while {there} files lie under "
                    f"{folder}*/",
                )
            )
            return None

    data = read("data_path", info.data_path, data_fields)
    video = read("video_path", info.video_path if info.cameras else None, video_fields)
    images = [camera.key for camera in info.image_cameras]
    if images:
        text = f"the cameras {listed(images)} are stored as single images, which are taken over as they are"
        found.append(
            Breach(rule=rules.IMAGE_FEATURES, feature=images[0], expected="video", found="image", message=text)
        )
    guess = parse_template(default_data_path(info.version), data_fields, info.version)
    return Templates(data=data or guess, video=video, breaches=found, guessed=data is None)

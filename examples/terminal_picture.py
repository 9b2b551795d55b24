"""Records a command in a terminal of its own and draws what was seen as SVG, for the README.

    python examples/terminal_picture.py examples/demo.svg --sections 1 2 5 7 8 -- python examples/demo.py

Sections are what the demo numbers; without the option everything is drawn.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 132, 60
_CONTROL = re.compile(r"\x1b\[\??[0-9;]*[A-HJKSTfhlsu]|\x1b\][^\x07]*\x07|\r(?!\n)")
_HEADING = re.compile(r"(\d)  \S.* ─{3,}")


def record(command: list[str]) -> str:
    """Everything that the command wrote to its terminal; raises `CalledProcessError` when it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "FORCE_COLOR": "1"}  # noqa: TID251 a script of its own
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)  # noqa: S603 what was asked for
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # how a closed terminal ends on Linux
            break
        if not piece:
            break
        seen += piece
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return seen.decode("utf-8", errors="replace")


def chosen(text: str, sections: list[int]) -> list[Text]:
    """Lines without cursor movements, of the wanted sections only."""
    lines = [Text.from_ansi(_CONTROL.sub("", line)) for line in text.replace("\r\n", "\n").split("\n")]
    if not sections:
        return lines
    found: list[Text] = []
    wanted = False
    for line in lines:
        if heading := _HEADING.match(line.plain):
            wanted = int(heading.group(1)) in sections
        if wanted:
            found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--sections", type=int, nargs="*", default=[])
    parser.add_argument("--title", default="make demo")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    text = record(given.command)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for line in chosen(text, given.sections):
            line.truncate(COLUMNS, overflow="ellipsis")
            console.print(line, no_wrap=True, crop=True)
        console.save_svg(str(given.picture), title=given.title, theme=MONOKAI)


if __name__ == "__main__":
    main()

"""Records a command in a terminal of its own and draws what was seen as SVG, for the README.

    python examples/terminal_picture.py examples/demo.svg --sections 1 2 5 7 8 --lines 26 -- python examples/demo.py

Sections are what the demo numbers; without the options everything is drawn.
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
_TOKEN = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\r*\n|\r|[^\x1b\r\n]+")
_HEADING = re.compile(r"(\d)  \S.* ─{3,}")


def record(command: list[str]) -> str:
    """Everything that the command wrote to its terminal; raises `CalledProcessError` when it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}  # noqa: TID251 a script of its own
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


def screen(text: str) -> list[Text]:
    """What is left on the screen: progress bars that were drawn over are gone, as for whoever watched."""
    lines, row, at_start = [""], 0, False
    for token in _TOKEN.finditer(text):
        count, command = token.group(1), token.group(2)
        if command == "m":
            lines[row] += token.group()
        elif command == "A":
            row = max(0, row - int(count or 1))
        elif command == "K":
            lines[row] = ""
        elif token.group() == "\r":
            at_start = True
        elif token.group().endswith("\n"):
            row, at_start = row + 1, False
            lines += [""] * (row + 1 - len(lines))
        elif not command and not token.group().startswith("\x1b"):
            lines[row] = token.group() if at_start else lines[row] + token.group()
            at_start = False
    return [Text.from_ansi(line) for line in lines]


def chosen(lines: list[Text], sections: list[int], most: int) -> list[Text]:
    """The wanted sections, each cut to at most so many lines."""
    found: list[Text] = []
    wanted, taken = not sections, 0
    for line in lines:
        if heading := _HEADING.match(line.plain):
            wanted, taken = not sections or int(heading.group(1)) in sections, 0
        taken += wanted
        if wanted and taken <= most:
            found.append(line)
        elif wanted and taken == most + 1:
            found.append(Text("  …\n", style="dim"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--sections", type=int, nargs="*", default=[])
    parser.add_argument("--lines", type=int, default=10_000, help="of each section")
    parser.add_argument("--title", default="make demo")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    text = record(given.command)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for line in chosen(screen(text), given.sections, given.lines):
            line.truncate(COLUMNS, overflow="ellipsis")
            console.print(line, no_wrap=True, crop=True)
        console.save_svg(str(given.picture), title=given.title, theme=MONOKAI)


if __name__ == "__main__":
    main()

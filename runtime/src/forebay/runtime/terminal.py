r"""What commands print: the only module that writes to standard output and standard error.

Everything printed passes `escaping` here, so a new command is safe without doing anything.
A string given to a console is one line of markup with our own few styles: a line break in
it came from outside and is shown as `\n`, an unknown tag is shown as it is written, and
there are neither links nor emoji codes. Callers still `escape` what they put into markup;
forgetting it can change a colour and nothing else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, HighlighterType, JustifyMethod, OverflowMethod, RenderableType
from rich.errors import MarkupError
from rich.markup import escape
from rich.markup import render as parse
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Span, Text

from forebay.runtime.escaping import json_text, visible

LINE_LIMIT = 2000
CELL_LIMIT = 500
"""Characters shown of one line, and of one cell of a table."""
_PIPE_WIDTH = 150
_TAG = re.compile(r"(\\*)\[([a-z#/@][^[]*?)]")  # as rich reads them
_WORD = "bold|dim|italic|red|green|yellow|cyan|magenta|blue|white"
_OURS = re.compile(rf"/|/?(?:{_WORD})(?: (?:{_WORD}))*")


class Terminal(Console):
    """A console on which text from outside can do nothing but be read."""

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,  # noqa: ARG002 the library's signature
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        """One string as text; every string that rich prints comes through here."""
        made = super().render_str(
            visible(text) if markup is False else _markup(text), style=style, justify=justify, overflow=overflow,
            emoji=False, markup=markup, highlight=highlight, highlighter=highlighter,
        )  # fmt: skip
        return _shortened(made, LINE_LIMIT)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Texts that were made elsewhere, such as those of progress bars."""
        return super().render(_visible(renderable) if isinstance(renderable, Text) else renderable, options)


class Rows(Table):
    """A table without lines, whose cells are markup of a limited length."""

    def add_row(self, *cells: RenderableType | None, style: Any = None, end_section: bool = False) -> None:
        """Add a row of cells."""
        limited = (_cell(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*limited, style=style, end_section=end_section)


def console(*, stderr: bool = False, wrap: bool = False, highlight: bool = True) -> Terminal:
    """Text for people; a pipe has no width of its own and gets a wide one. `wrap` breaks lines between words."""
    made = Terminal(stderr=stderr, soft_wrap=not wrap, highlight=highlight, emoji=False)
    if not made.is_terminal:
        made.width = max(made.width, _PIPE_WIDTH)
    return made


def plain_table(*headers: str) -> Rows:
    """A table whose columns have these headers."""
    return Rows(*headers, box=None, pad_edge=False, show_edge=False, header_style="bold")


def print_json(value: Any, *, indent: int | None = None) -> None:
    """One JSON value on standard output, on one line unless `indent` is given."""
    print_document(json_text(value, indent=indent))


def print_line(text: str, *, stderr: bool = False) -> None:
    """One line as it is, without markup."""
    _write(visible(text) + "\n", stderr=stderr)


def print_document(text: str) -> None:
    """A document whose lines are ours, and whose values its own format has escaped."""
    _write("".join(f"{visible(line)}\n" for line in text.removesuffix("\n").split("\n")), stderr=False)


def _write(text: str, *, stderr: bool) -> None:
    stream = sys.stderr if stderr else sys.stdout
    stream.write(text)
    stream.flush()


def _cell(markup: str) -> Text:
    return _shortened(Text.from_markup(_markup(markup), emoji=False), CELL_LIMIT)


def _markup(text: str) -> str:
    """Markup in which our own styles count and everything else is shown."""
    known = _TAG.sub(_known, visible(text))
    try:
        parse(known, emoji=False)
    except MarkupError:  # it closes what nothing opened
        return escape(visible(text))
    return known


def _known(tag: re.Match[str]) -> str:
    """One of our tags as it is, any other with a backslash, which makes it text."""
    backslashes, style = tag.groups()
    return tag[0] if len(backslashes) % 2 or _OURS.fullmatch(style) else f"\\{tag[0]}"


def _visible(text: Text) -> Text:
    shown = visible(text.plain)
    if shown == text.plain:
        return text
    places = [0]
    for letter in text.plain:
        places.append(places[-1] + len(visible(letter)))
    made = text.blank_copy(shown)
    made.spans = [Span(places[span.start], places[min(span.end, len(text))], span.style) for span in text.spans]
    return made


def _shortened(text: Text, limit: int) -> Text:
    cut = len(text) - limit
    if cut > 0:
        text.right_crop(cut)
        text.append(f"… ({cut:,} more characters)")
    return text

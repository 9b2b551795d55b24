"""Lines of a service's log: one record is one line, and what a traceback adds is indented.

A message often quotes what came from outside; nothing in it may begin a line of its own.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from forebay.runtime.escaping import visible

_INDENT = "    "


class LogLines(logging.Formatter):
    """A formatter whose first line is the record, and whose other lines all begin with spaces."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the library's name
        """The record's own line."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 the library's name
        """The traceback, whose last lines quote the error."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 the library's name
        """The stack."""
        return _indented(super().formatStack(stack_info))


def log_to_stderr(level: int | str, layout: str) -> None:
    """Set up logging of this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(layout))
    logging.basicConfig(level=level, handlers=[handler])


def _indented(text: str) -> str:
    return "\n".join(_INDENT + visible(line) for line in text.split("\n"))

"""What can go wrong in the sdk, each with what to do next.

The command line prints them; a training script sees them as exceptions.
"""

from __future__ import annotations


class ForebayError(Exception):
    """Root: what happened, to what, and what to do next."""

    code = "error"

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__(f"{message}; {next_action}" if next_action else message)
        self.message = message
        self.next_action = next_action


class NotADatasetError(ForebayError):
    """A folder that cannot be uploaded as a LeRobot dataset."""

    code = "not-a-dataset"


class SourceChangedError(ForebayError):
    """A file changed while it was uploaded."""

    code = "source-changed"


class InputNotDeclaredError(ForebayError, LookupError):
    """The job asks for an input that its specification does not list."""

    code = "input-not-declared"


class ColumnNotPinnedError(ForebayError, LookupError):
    """The column exists or not, but the job's plan does not contain it."""

    code = "column-not-pinned"


class DataUnreadableError(ForebayError):
    """The pinned version cannot be read here."""

    code = "data-unreadable"


class OutsideJobError(ForebayError):
    """A command that only makes sense inside an attempt was called outside of one."""

    code = "outside-a-job"


class BadJobFolderError(ForebayError):
    """The attempt folder or inputs file that the scheduler prepared is not usable."""

    code = "bad-attempt"

"""Everything that ingest can raise on purpose; each says what happened, to what, and what to do next."""

from __future__ import annotations


class IngestError(Exception):
    """Root of ingest's errors."""


class UnsafePathError(IngestError):
    """A path that leaves the folder it belongs to."""


class UnreadableFileError(IngestError):
    """A file's content is not what its name promises; reading again will not help."""


class LandingRefusedError(IngestError):
    """An upload claims a landing folder or a manifest that is not its own."""


class StorageUnavailableError(IngestError):
    """The data pool cannot be reached now; it may be back later."""


class DecodersUnavailableError(StorageUnavailableError):
    """No process can be started to decode files in; later there may be room again."""


class ConversionError(IngestError):
    """Accepted episodes cannot be written as one version; a person has to look."""


class ReadBackError(IngestError):
    """What was written is not what was read; the version is not reported."""


class PolicyRefusedError(IngestError):
    """A project's policy says something that nobody can follow; the text names every problem."""


class PlaceUnknownError(IngestError):
    """A place that is named does not exist, or is none that datasets are read from."""


class ObjectStoreError(IngestError):
    """An object store does not answer, or does not let us in; the text says what to look at."""


class SourceChangedError(IngestError):
    """A dataset in its own place was changed while it was looked at, or since it was registered."""

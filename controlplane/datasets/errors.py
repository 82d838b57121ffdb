"""What is refused of a dataset; each message is for people."""

from __future__ import annotations


class DatasetError(Exception):
    """The dataset can't be used like this."""


class NameTaken(DatasetError):
    """There is a dataset of this name already."""


class TooLarge(DatasetError):
    """The file is larger than this installation allows."""


class NoSpace(DatasetError):
    """The disk has no room for the file."""


class SourceRefused(DatasetError):
    """What was named is no dataset that may be read from here."""


class ChildFailed(DatasetError):
    """The reading process did not do its work. `kind`: limits, disk, server."""

    def __init__(self, kind: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind, self.advice = kind, advice

    def as_dict(self) -> dict[str, str]:
        """As the reading process tells of a file that it can't read."""
        return {"kind": self.kind, "message": str(self), "advice": self.advice}

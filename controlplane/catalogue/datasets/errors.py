"""Errors of datasets; their messages are for people."""


class DatasetError(Exception):
    """The dataset can't be used like this."""


class NameTaken(DatasetError):
    """A dataset of this name already exists."""


class TooLarge(DatasetError):
    """The file is larger than this installation allows."""


class NoSpace(DatasetError):
    """The disk has no room for the file."""


class SourceRefused(DatasetError):
    """The source is not a dataset that may be read from here."""


class ChildFailed(DatasetError):
    """The reader process failed. `kind`: limits, disk, server."""

    def __init__(self, kind: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind, self.advice = kind, advice

    def as_dict(self) -> dict[str, str]:
        """Write the error in the reader process's format for unreadable files."""
        return {"kind": self.kind, "message": str(self), "advice": self.advice}

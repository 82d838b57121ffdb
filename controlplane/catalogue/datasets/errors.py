"""Errors about datasets, with messages for people."""


class DatasetError(Exception):
    """Base class of errors about datasets, with messages for people."""


class NameTaken(DatasetError):
    """Refusal of a name that another dataset has or is about to get."""


class TooLarge(DatasetError):
    """Refusal of a file that is larger than this installation allows."""


class NoSpace(DatasetError):
    """Failure to store a file, usually because the disk is full."""


class SourceRefused(DatasetError):
    """Refusal of a source that isn't a dataset, or that this server may not read."""


class ChildFailed(DatasetError):
    """Failure of a child process. `kind` is limits, disk or server; for a fetch, it may also be source or refused."""

    def __init__(self, kind: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind, self.advice = kind, advice

    def as_dict(self) -> dict[str, str]:
        """Return the error in the format in which the reader process reports unreadable files."""
        return {"kind": self.kind, "message": str(self), "advice": self.advice}

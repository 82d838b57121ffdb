"""Serves chosen files out of an installed package, below an address that has the package's version in it.

Browsers are told to keep them for good. Nothing else of the package is served: packages carry more than pages need.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage


class PackageFinder(BaseFinder):
    package: str
    inside: str
    """The folder in it."""
    folder: str
    """What the files' names begin with here."""
    files: tuple[str, ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec(self.package)  # found, not imported: a package's Python side may take long to load
        if spec is None or spec.origin is None:
            raise RuntimeError(f"The {self.package} package is not installed.")
        self._storage = FileSystemStorage(location=Path(spec.origin).parent / self.inside)
        setattr(self._storage, "prefix", self.folder)  # noqa: B010  collectstatic joins it before the name

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        name = path.removeprefix(f"{self.folder}/")
        if name == path or name not in self.files:
            return []
        found = self._storage.path(name)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Any:
        for name in self.files:
            yield name, self._storage

"""Serves chosen files out of an installed package, below an address that has the package's version in it.

Browsers are told to keep them for good. Nothing else of the package is served: packages carry more than pages need.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
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


PLOTLY_FOLDER = f"plotly/{version('plotly')}"
PLOTLY = f"{PLOTLY_FOLDER}/plotly.min.js"


class PlotlyFinder(PackageFinder):
    """plotly.min.js from the plotly wheel, and nothing else of its package data (that has sample data sets)."""

    package = "plotly"
    inside = "package_data"
    folder = PLOTLY_FOLDER
    files = ("plotly.min.js",)


ACE_FOLDER = f"ace/{version('django-ace')}"
ACE, ACE_STYLES = "ace.js", "css/ace.css"
ACE_IMAGES = tuple(f"css/main-{n}.{'svg' if n in (*range(5, 13), 25) else 'png'}" for n in range(1, 27))
"""What the style sheet names; a test holds that it is all of it."""


class AceFinder(PackageFinder):
    """The code editor Ace from the django-ace wheel: what Python in it needs, none of its other modes and themes.

    Its style sheet is linked: a page's policy refuses the <style> elements that Ace would write.
    """

    package = "django_ace"
    inside = "static/django_ace/ace"
    folder = ACE_FOLDER
    files = (ACE, ACE_STYLES, *ACE_IMAGES, "mode-python.js", "ext-searchbox.js")

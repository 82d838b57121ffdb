"""Serves plotly.min.js from the plotly wheel, and nothing else of its package data (that has sample data sets)."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage


class PlotlyFinder(BaseFinder):
    NAME = "plotly/plotly.min.js"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("plotly")  # found, not imported: the Python side of plotly takes long to load
        if spec is None or spec.origin is None:
            raise RuntimeError("The plotly package is not installed.")
        self._storage = FileSystemStorage(location=Path(spec.origin).parent / "package_data")
        setattr(self._storage, "prefix", "plotly")  # noqa: B010  collectstatic joins it before the name

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path != self.NAME:
            return []
        found = self._storage.path("plotly.min.js")
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Any:
        yield "plotly.min.js", self._storage

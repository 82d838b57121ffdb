"""Serves plotly.min.js from the plotly wheel, and nothing else of its package data (that has sample data sets)."""

from __future__ import annotations

from importlib.metadata import version

from controlplane.packagefinder import PackageFinder

FOLDER = f"plotly/{version('plotly')}"
FILE = "plotly.min.js"
NAME = f"{FOLDER}/{FILE}"


class PlotlyFinder(PackageFinder):
    package = "plotly"
    inside = "package_data"
    folder = FOLDER
    files = (FILE,)

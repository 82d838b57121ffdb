"""Serves selected files of installed packages as static files, and nothing else of these packages."""

import json
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage


def located(package: str) -> Path:
    """Return an installed package's folder, without importing it, which may be slow."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"The {package} package is not installed.")
    return Path(spec.origin).parent


class PackageFinder(BaseFinder):
    inside: Path
    """The folder inside the package that is served."""
    folder: str
    """The prefix of the served names."""
    files: tuple[str, ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._storage = FileSystemStorage(location=self.inside)
        setattr(self._storage, "prefix", self.folder)  # noqa: B010  # collectstatic prepends it to the name

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        name = path.removeprefix(f"{self.folder}/")
        if name == path or name not in self.files:
            return []
        location = self._storage.path(name)
        return [location] if find_all else location

    def list(self, ignore_patterns: Iterable[str] | None) -> Any:
        for name in self.files:
            yield name, self._storage


NODE_MODULES = settings.BASE_DIR / "frontend" / "node_modules"


def plotly(node_modules: Path) -> tuple[Path, str]:
    """Return the folder of Plotly's script, and its path in URLs.

    That of the basic build (lines, bars and pies), a quarter of the size, if `npm ci --prefix frontend` has installed
    it; otherwise the full build of the plotly wheel.
    """
    basic = node_modules / "plotly.js-basic-dist-min"
    if (basic / "plotly-basic.min.js").is_file():
        return basic, f"plotly-basic/{json.loads((basic / 'package.json').read_text())['version']}/plotly-basic.min.js"
    return located("plotly") / "package_data", f"plotly/{version('plotly')}/plotly.min.js"


PLOTLY_INSIDE, PLOTLY = plotly(NODE_MODULES)


class PlotlyFinder(PackageFinder):
    """Plotly's script alone: the wheel's data includes sample datasets."""

    inside = PLOTLY_INSIDE
    folder, _, _file = PLOTLY.rpartition("/")
    files = (_file,)


ACE_FOLDER = f"ace/{version('django-ace')}"
ACE, ACE_STYLES = "ace.js", "css/ace.css"
ACE_IMAGES = tuple(f"css/main-{n}.{'svg' if n in (*range(5, 13), 25) else 'png'}" for n in range(1, 27))
"""All images of the style sheet; a test checks that none is missing."""


class AceFinder(PackageFinder):
    """The Ace code editor from the django-ace wheel, with the Python mode alone.

    The style sheet is linked: the page's policy refuses the <style> elements that Ace would insert.
    """

    inside = located("django_ace") / "static/django_ace/ace"
    folder = ACE_FOLDER
    files = (ACE, ACE_STYLES, *ACE_IMAGES, "mode-python.js", "ext-searchbox.js")


FONT = "fonts/geist/Geist[wght].ttf"


class FontFinder(PackageFinder):
    """The typeface: one file with all weights, without italics, because the browser slants text itself."""

    inside = located("fontpkg_geist") / "files"
    folder = "fonts/geist"
    files = ("Geist[wght].ttf",)


class MonoFontFinder(PackageFinder):
    inside = located("fontpkg_geist_mono") / "files"
    folder = "fonts/geist-mono"
    files = ("GeistMono[wght].ttf",)

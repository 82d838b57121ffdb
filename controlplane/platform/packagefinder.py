"""Static file finders for selected files of installed packages, and no others."""

import json
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage


def package_folder(package: str) -> Path:
    """Return an installed package's folder without importing the package, which may be slow."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"The {package} package is not installed.")
    return Path(spec.origin).parent


class PackageFinder(BaseFinder):
    inside: Path
    folder: str
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
    """Return the folder of Plotly's script and the script's path in URLs.

    After `npm ci --prefix frontend` this is the basic build (lines, bars and pies), a quarter of the size; otherwise it
    is the full build in the plotly wheel.
    """
    basic = node_modules / "plotly.js-basic-dist-min"
    if (basic / "plotly-basic.min.js").is_file():
        return basic, f"plotly-basic/{json.loads((basic / 'package.json').read_text())['version']}/plotly-basic.min.js"
    return package_folder("plotly") / "package_data", f"plotly/{version('plotly')}/plotly.min.js"


PLOTLY_INSIDE, PLOTLY = plotly(NODE_MODULES)


class PlotlyFinder(PackageFinder):
    """Finder of Plotly's script alone, because the wheel's data includes sample datasets."""

    inside = PLOTLY_INSIDE
    folder, _, _file = PLOTLY.rpartition("/")
    files = (_file,)


ACE_FOLDER = f"ace/{version('django-ace')}"
ACE, ACE_STYLES = "ace.js", "css/ace.css"
ACE_IMAGES = tuple(f"css/main-{n}.{'svg' if n in (*range(5, 13), 25) else 'png'}" for n in range(1, 27))
"""All images that the style sheet uses; a test checks that none is missing."""


class AceFinder(PackageFinder):
    """Finder of the Ace code editor in the django-ace wheel, with only the Python mode.

    The style sheet is linked: the page's policy refuses the <style> elements that Ace would insert.
    """

    inside = package_folder("django_ace") / "static/django_ace/ace"
    folder = ACE_FOLDER
    files = (ACE, ACE_STYLES, *ACE_IMAGES, "mode-python.js", "ext-searchbox.js")


FONT = "fonts/geist/Geist[wght].ttf"


class FontFinder(PackageFinder):
    """Finder of the typeface: one file with all weights and no italics, because the browser slants text itself."""

    inside = package_folder("fontpkg_geist") / "files"
    folder = "fonts/geist"
    files = ("Geist[wght].ttf",)


class MonoFontFinder(PackageFinder):
    inside = package_folder("fontpkg_geist_mono") / "files"
    folder = "fonts/geist-mono"
    files = ("GeistMono[wght].ttf",)

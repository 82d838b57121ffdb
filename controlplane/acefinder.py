"""Serves the code editor Ace from the django-ace wheel: what Python in it needs, none of its other modes and themes.

Its style sheet is linked: a page's policy refuses the <style> elements that Ace would write.
"""

from __future__ import annotations

from importlib.metadata import version

from controlplane.packagefinder import PackageFinder

FOLDER = f"ace/{version('django-ace')}"
SCRIPT, STYLES = "ace.js", "css/ace.css"
IMAGES = tuple(f"css/main-{n}.{'svg' if n in (*range(5, 13), 25) else 'png'}" for n in range(1, 27))
"""What the style sheet names; a test holds that it is all of it."""
FILES = (SCRIPT, STYLES, *IMAGES, "mode-python.js", "ext-searchbox.js")


class AceFinder(PackageFinder):
    package = "django_ace"
    inside = "static/django_ace/ace"
    folder = FOLDER
    files = FILES

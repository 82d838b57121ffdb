"""Template tags for the URLs of scripts and the typeface, and for preload links."""

import posixpath
import re
from functools import cache
from pathlib import Path

from django import template
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from controlplane.platform import packagefinder

register = template.Library()
_IMPORT = re.compile(r'^(?:import|export)\b[^";]*"(\.{1,2}/[^"]+)"', re.MULTILINE)


@register.simple_tag
def plotly_src() -> str:
    return static(packagefinder.PLOTLY)


@register.simple_tag
def font_src() -> str:
    return static(packagefinder.FONT)


@register.simple_tag
def ace_src(name: str = packagefinder.ACE) -> str:
    """Return the URL of a file of the code editor, or of the editor's folder if `name` is ""."""
    return static(f"{packagefinder.ACE_FOLDER}/{name}")


@register.simple_tag
def preload_modules(name: str) -> SafeString:
    """Write a preload link for every module that `name` imports, directly or indirectly.

    Without the links, a browser finds each module only after loading the one that imports it: a round trip per level.
    """
    links = ((static(module),) for module in imported(name))
    return format_html_join("\n  ", '<link rel="modulepreload" href="{}">', links)


@cache
def imported(name: str) -> tuple[str, ...]:
    """Return all modules that `name` imports, directly or indirectly, without duplicates and in order of distance."""
    modules = [name]
    for module in modules:
        path = finders.find(module)
        if path is None:
            raise LookupError(f"There is no static file {module}.")
        folder = module.rpartition("/")[0]
        paths = dict.fromkeys(_IMPORT.findall(Path(path).read_text("utf-8")))
        imports = dict.fromkeys(posixpath.normpath(f"{folder}/{relative}") for relative in paths)
        modules += [module for module in imports if module not in modules]
    return tuple(modules[1:])

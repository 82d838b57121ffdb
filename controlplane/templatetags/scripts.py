"""Addresses of the scripts that a page loads ahead of their use."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

from django import template
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from controlplane import packagefinder

register = template.Library()
_IMPORT = re.compile(r'^(?:import|export)\b[^";]*"(\.{1,2}/[^"]+)"', re.MULTILINE)


@register.simple_tag
def plotly_src() -> str:
    return static(packagefinder.PLOTLY)


@register.simple_tag
def ace_src(name: str = packagefinder.ACE) -> str:
    """Of a file of the code editor; "" for the folder that it loads its parts from."""
    return static(f"{packagefinder.ACE_FOLDER}/{name}")


@register.simple_tag
def preload_modules(name: str) -> SafeString:
    """A link for every module that `name` imports, itself or by another one.

    Without them a browser learns of each only when it has read the one before: as many ways to the server and back as
    the imports are deep.
    """
    links = ((static(module),) for module in imported(name))
    return format_html_join("\n  ", '<link rel="modulepreload" href="{}">', links)


@cache
def imported(name: str) -> tuple[str, ...]:
    """Every module that `name` needs, once, the nearest first; a process reads them once."""
    found = [name]
    for module in found:
        path = finders.find(module)
        if path is None:
            raise LookupError(f"There is no static file {module}.")
        folder = module.rpartition("/")[0]
        near = [posixpath.normpath(f"{folder}/{other}") for other in _IMPORT.findall(Path(path).read_text("utf-8"))]
        found += [other for other in dict.fromkeys(near) if other not in found]
    return tuple(found[1:])

"""Lucide icons as inline SVG, each rendered once per process.

The package's own tag lists its archive of 1,700 files at the first use of an icon, and renders the SVG again each time.
"""

from functools import cache
from importlib.resources import files
from io import BytesIO
from zipfile import ZipFile

from django import template
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
@cache
def lucide(name: str, *, size: int = 24) -> SafeString:
    """Return the icon with this name as SVG, `size` pixels wide and high. Raises KeyError for an unknown name."""
    svg = " ".join(_archive().read(f"{name}.svg").decode().split())
    svg = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    return SafeString(svg.replace('width="24" height="24"', f'width="{size}" height="{size}"', 1))


@cache
def _archive() -> ZipFile:
    return ZipFile(BytesIO((files("lucide") / "lucide.zip").read_bytes()))

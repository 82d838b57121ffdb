"""Navigation items, and small drawings that several pages use."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from django import template
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import NO_VALUE, change
from controlplane.platform.templatetags.lucide import lucide

register = template.Library()


@register.inclusion_tag("components/nav_item.html", takes_context=True)
def nav_item(context: Context, name: str, icon: str, label: str, **extra: Any) -> dict[str, Any]:
    """Show a navigation link, marked as current if the page's address is below that of the link or of a route in
    `also`.

    `but_not` is a route whose pages belong to another item. A page whose address would mark the wrong item sets
    `section` to the right item's route.
    """
    try:
        address = reverse(name)
    except NoReverseMatch:
        address = ""
    path = context["request"].path if "request" in context else ""
    excluded = extra.get("but_not")
    paths = [address, *map(reverse, extra.get("also", "").split())]
    current = bool(address) and path.startswith(tuple(paths)) and not (excluded and path.startswith(reverse(excluded)))
    if section := context.get("section"):
        current = name == section
    return {"name": name, "icon": icon, "label": label, "address": address, "current": current, **extra}


@dataclass(frozen=True)
class EmptyState:
    """Text of a page that has no content yet, with the next step."""

    icon: str
    title: str
    text: str
    address: str = ""
    act: str = ""


@register.inclusion_tag("components/empty.html")
def empty_state(state: EmptyState) -> dict[str, str]:
    return asdict(state)


CIRCLE = '<circle cx="6" cy="6" r="4.5"/>'
DASHED_CIRCLE = '<circle cx="6" cy="6" r="4.5" stroke-dasharray="2 2"/>'
TICK, CROSS = '<path d="M2.5 6.5 5 9l4.5-6"/>', '<path d="m3 3 6 6M9 3 3 9"/>'
FILL_ATTRIBUTES = 'fill="currentColor" stroke="none"/>'
SHAPES = {
    "queued": f'{CIRCLE}<path d="M6 3.6V6l1.7 1"/>',
    "starting": DASHED_CIRCLE,
    "checking": DASHED_CIRCLE,
    "running": f'{CIRCLE}<circle class="core" cx="6" cy="6" r="2" {FILL_ATTRIBUTES}',
    "stopping": f'{DASHED_CIRCLE}<rect x="4.5" y="4.5" width="3" height="3" {FILL_ATTRIBUTES}',
    "stopped": f'<rect x="3" y="3" width="6" height="6" rx="1" {FILL_ATTRIBUTES}',
    **dict.fromkeys(("succeeded", "ready", "good"), TICK),
    **dict.fromkeys(("failed", "invalid", "bad"), CROSS),
}
"""Drawing in the chip of each status; other statuses have an exclamation mark."""


@register.simple_tag
def status_shape(status: str) -> SafeString:
    return SafeString(SHAPES.get(status, '<path d="M6 2v5M6 9.5v.01"/>'))


LEVEL_ICONS = {"good": "circle-check", "warn": "triangle-alert", "bad": "circle-x"}
TONES = {"watch": "warn", "warning": "warn", "stop": "bad", "error": "bad"}
"""Levels of hints, findings and problems -> the tones in which their icons are shown."""


@register.simple_tag
def level_icon(level: str, *, size: int = 16, toned: bool = False) -> SafeString:
    """Show the icon of a level, in the level's color if `toned`."""
    tone = TONES.get(level, level)
    icon = lucide(LEVEL_ICONS.get(tone, "info"), size=size)
    return format_html('<span class="{}">{}</span>', tone, icon) if toned and tone in LEVEL_ICONS else icon


@register.simple_tag
def sparkline(values: Iterable[float | None], width: int = 88, height: int = 20) -> str | SafeString:
    """Draw values as a line in inline SVG."""
    points = [float(value) for value in values if value is not None]
    if len(points) < 2:
        return ""
    low, high = min(points), max(points)
    spread = (high - low) or 1.0
    step = (width - 4) / (len(points) - 1)
    path = " ".join(
        f"{2 + index * step:.1f},{height - 2 - (value - low) / spread * (height - 4) if high > low else height / 2:.1f}"
        for index, value in enumerate(points)
    )
    end_point = path.rsplit(" ", 1)[-1].split(",")
    return format_html(
        '<svg class="spark" width="{w}" height="{h}" viewBox="0 0 {w} {h}" aria-hidden="true">'
        '<polyline points="{p}" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"/>'
        '<circle cx="{x}" cy="{y}" r="2" fill="currentColor"/></svg>',
        w=width,
        h=height,
        p=path,
        x=end_point[0],
        y=end_point[1],
    )


@register.inclusion_tag("components/bar.html")
def stacked_bar(parts: Iterable[dict[str, Any]], total: float, unit: str = "", key: bool = True) -> dict[str, Any]:
    """Draw a bar of segments {"label", "value", "colour": "c1".."c8"}; the rest of `total` stays empty.

    Widths are SVG attributes, because the page's policy forbids inline styles.
    """
    segments, offset = [], 0.0
    for part in parts:
        share = 100 * max(0.0, float(part["value"])) / total if total else 0.0
        segments.append({**part, "x": round(offset, 2), "width": round(min(share, 100 - offset), 2)})
        offset = min(100.0, offset + share)
    return {"parts": segments, "total": total, "unit": unit, "key": key}


@register.simple_tag
def spread_bar(spread: Any, low: float, high: float) -> str | SafeString:
    """Draw a metric's Spread from `low` to `high`: its range as a line, mean ± standard deviation as a band."""
    if spread.mean is None or spread.low is None or spread.high is None:
        return ""

    def position(value: float) -> str:
        return f"{2 + 96 * (min(max(value, low), high) - low) / ((high - low) or 1.0):.1f}"

    deviation = spread.deviation or 0.0
    start, end = position(spread.mean - deviation), position(spread.mean + deviation)
    return format_html(
        '<svg class="spread-bar" viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">'
        '<line x1="{}" x2="{}" y1="8" y2="8"/><rect x="{}" y="5" width="{}" height="6"/>'
        '<line class="mean" x1="{m}" x2="{m}" y1="2" y2="14"/></svg>',
        *(position(spread.low), position(spread.high), start),
        f"{float(end) - float(start):.1f}",
        m=position(spread.mean),
    )


@register.simple_tag
def advantage(value: float | None, widest: float | None = None) -> SafeString:
    """Show an advantage with its sign, in the color for positive or negative ones.

    With `widest`, the largest absolute value on the scale, add a bar that extends from the middle to the right if the
    advantage is positive and to the left if it is negative.
    """
    kind = "above" if (value or 0) > 0 else "below" if (value or 0) < 0 else "zero"
    bar = "" if value is None or not widest else _centered_bar(value / widest)
    return format_html(
        '<span class="advantage {}">{}<span class="num">{}</span></span>', kind, bar, change(value) or NO_VALUE
    )


def _centered_bar(share: float) -> SafeString:
    width = 64
    middle = width / 2
    length = min(1.0, abs(share)) * (middle - 2)
    return format_html(
        '<svg width="{w}" height="10" viewBox="0 0 {w} 10" aria-hidden="true">'
        '<rect x="{x}" y="1" width="{length}" height="8"/>'
        '<line x1="{half}" x2="{half}" y1="0" y2="10"/></svg>',
        w=width,
        x=f"{middle if share >= 0 else middle - length:.1f}",
        length=f"{max(length, 0.5):.1f}",
        half=middle,
    )

"""Template filters that format numbers, times and sizes, with few digits, small grey units, and a dash for no value."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
P = ParamSpec("P")

NO_VALUE = "–"
MINUS = "−"
COLOURS = 8


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def significant(number: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits: 0.713, 41.2, 1,204, 2.1e-6. Halves round up, as in scripts."""
    if number == 0:
        return "0"
    if not math.isfinite(number):
        return NO_VALUE
    size = abs(number)
    decimal = Decimal(number)
    with localcontext(rounding=ROUND_HALF_UP):
        if size >= 1e7 or size < 1e-4:
            mantissa, _, exponent = f"{decimal:.{digits - 1}e}".partition("e")
            formatted = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
        elif float(number).is_integer() or size >= 10 ** (digits - 1):
            formatted = f"{decimal:,.0f}"
        else:
            formatted = f"{decimal:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    return formatted.replace("-", MINUS, 1) if number < 0 else formatted


def figure(format_number: Callable[Concatenate[float, P], str]) -> Callable[Concatenate[Any, P], str]:
    """Register a filter that formats finite numbers with `format_number`, and any other value as a dash."""

    @wraps(format_number)
    def formatted(value: Any, /, *args: P.args, **kwargs: P.kwargs) -> str:
        number = _number(value)
        return NO_VALUE if number is None else format_number(number, *args, **kwargs)

    register.filter(format_number.__name__, formatted)
    return formatted


@figure
def sig(number: float, digits: int = 3) -> str:
    return significant(number, digits)


@figure
def fixed(number: float, decimals: int = 2) -> str:
    """Format a number with a fixed number of decimals, for columns that people compare."""
    return f"{number:,.{decimals}f}".replace("-", MINUS, 1)


@register.filter
def setting(value: Any) -> str:
    """Format a setting as a user would type it: 1e-06, on, none."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


@register.filter
def settings(values: Mapping[str, Any]) -> str:
    """Format settings on one line: beta=0.1, strict=on."""
    return ", ".join(f"{name}={setting(value)}" for name, value in values.items())


@register.filter
def change(value: Any) -> str:
    """Format a difference with its sign: small ones as plain decimals, negligible ones as ±0."""
    number = _number(value)
    if number is None:
        return ""
    sign = "+" if number > 0 else MINUS if number < 0 else ""
    size = abs(number)
    if 0 < size < 1e-6:
        return "±0"
    if 0 < size < 1e-4:
        return sign + f"{size:.{1 - math.floor(math.log10(size))}f}".rstrip("0")
    return sign + significant(size, 2)


@figure
def percent(number: float) -> str:
    """Format a fraction from 0 to 1 as a percentage."""
    return format_html('{}<span class="unit">%</span>', significant(number * 100, 2 if abs(number) < 0.1 else 3))


@figure
def si(number: float) -> str:
    """Format a large number with a metric prefix: 18.4k."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return significant(number / limit) + letter
    return significant(number)


@figure
def parameters(number: float) -> str:
    """Format a model's parameter count: 7.6B, 494M."""
    limit, letter = (1e9, "B") if number >= 1e9 else (1e6, "M")
    return significant(number / limit, 2 if number < 1e10 else 3) + letter


@figure
def size(number: float) -> str:
    """Format bytes in binary units, with a small unit."""
    return format_html('{}<span class="unit">{}</span>', *_binary(number))


@figure
def size_in_words(number: float) -> str:
    """Format bytes in binary units as plain text, for use in sentences."""
    return "\N{NO-BREAK SPACE}".join(_binary(number))


@figure
def download_size(number: float) -> str:
    """Format bytes in decimal units, as on the hub's pages: 2.9 GB, 4.1 MB, 12 kB."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    amount, unit = next((number / size, unit) for size, unit in units if number >= size / 10 or unit == "kB")
    return f"{significant(amount, 2 if amount < 100 else 3)}\N{NO-BREAK SPACE}{unit}"


def _binary(number: float) -> tuple[str, str]:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return significant(number), unit


@figure
def mib(number: float) -> str:
    return size(number * 2**20)


@register.filter
def duration(value: Any) -> str:
    """Format seconds (or a timedelta) in the two largest units: 12 ms, 0.31 s, 45 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    number = _number(value.total_seconds() if hasattr(value, "total_seconds") else value)
    if number is None:
        return NO_VALUE
    seconds = max(0.0, number)
    if 0 < seconds < 0.1:
        return f"{math.floor(seconds * 1000 + 0.5)} ms"
    if 0 < seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    total = round(seconds)
    for above, big, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= above:
            rest = total % above // below
            return f"{total // above} {big} {rest} {small}" if rest else f"{total // above} {big}"
    return f"{total} s"


@register.filter
def computing_time(seconds: Any) -> str | SafeString:
    """Format a computing time in seconds, as milliseconds if it is below a second."""
    number = _number(seconds)
    if number is None or number >= 1:
        return duration(seconds)
    return format_html('{}<span class="unit">ms</span>', significant(1000 * number, 2))


@register.filter
def in_format(value: Any, form: str) -> str | SafeString:
    """Format a metric's value in the format of its tile and chart."""
    if form in ("percent", "mib"):
        return percent(value) if form == "percent" else mib(value)
    unit = SafeString('<span class="unit">tok</span>') if form == "tokens" and value is not None else ""
    return format_html("{}{}", sig(value), unit)


@figure
def about(number: float) -> str:
    """Format an estimated duration in seconds, rounded to the accuracy of such an estimate."""
    step = next(step for above, step in ((36000, 3600), (5400, 600), (90, 60), (-math.inf, 5)) if number >= above)
    return duration(max(step, round(number / step) * step))


@register.filter
def since(value: datetime | None) -> str:
    """Format the time since a moment in its largest unit: 5 s, 4 min, 2 h, 3 d."""
    if value is None:
        return NO_VALUE
    seconds = max(0, int((timezone.now() - value).total_seconds()))
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"


@register.simple_tag
def ago(value: datetime | None) -> str:
    """Show the time since a moment, with the exact time on hover."""
    if value is None:
        return NO_VALUE
    return format_html(
        '<time datetime="{}" title="{} UTC" data-age="{}">{}</time>',
        value.isoformat(),
        value.strftime("%Y-%m-%d %H:%M:%S"),
        max(0, int((timezone.now() - value).total_seconds())),
        since(value),
    )


CLOCKS = {"clock": "%H:%M:%S UTC", "day": "%Y-%m-%d", "short": "%Y-%m-%d %H:%M:%S UTC"}


@register.simple_tag
def clock(value: datetime | None, form: str = "short") -> str:
    """Show a moment: the time of day ("clock"), the date ("day"), or "short": both, or only the time if it is today.

    times.js replaces it with the person's local time.
    """
    if value is None:
        return NO_VALUE
    name = "clock" if form == "short" and value.date() == timezone.now().date() else form
    attribute = format_html(' data-form="{}"', form) if form != "short" else ""
    return format_html('<time datetime="{}"{}>{}</time>', value.isoformat(), attribute, value.strftime(CLOCKS[name]))


@register.filter
def colour(index: Any) -> str:
    """Return the colour class of a reward component by its index in the config."""
    return f"c{int(index) % COLOURS + 1}"


@register.filter
def at(mapping: Mapping[str, Any], key: str) -> Any:
    """Return a mapping's value for a key, which may be a template variable, or "" if there is none."""
    return mapping.get(key, "")


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value)


@register.filter
def ends(name: str | Sequence[tuple[str, str]], tail: int = 18, whole: int = 12) -> Sequence[tuple[str, str]]:
    """Split a long name into two parts. Narrow cells truncate the first one, because names differ at their ends.

    Return a name that is already split unchanged.
    """
    if not isinstance(name, str):
        return name
    tail_length = min(tail, len(name) // 2)
    return [(name[:-tail_length], name[-tail_length:])] if len(name) > whole else [(name, "")]

"""Small plots as coordinates of SVG rectangles, which templates draw without scripts."""

from dataclasses import dataclass
from typing import Any

LENGTHS = (
    ("prompt_chars", "Prompt", "characters"),
    ("prompt_tokens", "Prompt", "tokens"),
    ("answer_chars", "Answer", "characters"),
    ("answer_tokens", "Answer", "tokens"),
)
MAX_LISTED = 12
HEIGHT = 40


@dataclass(frozen=True)
class HistogramBar:
    """A bar of a histogram 100 wide and 40 high; `label` describes it."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Histogram:
    """A distribution of lengths."""

    title: str
    unit: str
    bars: list[HistogramBar]
    figures: dict[str, Any]
    """The keys of statistics.Lengths: top, median, p95, longest, mean."""

    @property
    def label(self) -> str:
        figures = self.figures
        return (
            f"Length of the {self.title.lower()} in {self.unit}: median {figures['median']:,}, "
            f"95 % at most {figures['p95']:,}, longest {figures['longest']:,}"
        )


@dataclass(frozen=True)
class Share:
    """One of several named counts; `width` of 100 relative to the largest one."""

    name: str
    count: int
    share: float
    width: float


def histograms(statistics: dict[str, Any]) -> list[Histogram]:
    lengths = statistics.get("lengths") or {}
    return [_histogram(title, unit, lengths[name]) for name, title, unit in LENGTHS if lengths.get(name)]


def names(name_counts: dict[str, Any] | None, rows: int) -> dict[str, Any] | None:
    """Compute {"shares": of the most frequent names among `rows`, "rest": rows with other names}; None without any."""
    counts = (name_counts or {}).get("counts") or []
    if not counts:
        return None
    largest, listed = max(entry["count"] for entry in counts), counts[:MAX_LISTED]
    shares = [
        Share(entry["name"], entry["count"], entry["count"] / max(1, rows), round(100 * entry["count"] / largest, 2))
        for entry in listed
    ]
    rest = sum(entry["count"] for entry in counts[MAX_LISTED:])
    return {"shares": shares, "rest": rest + int((name_counts or {}).get("others") or 0)}


def _histogram(title: str, unit: str, figures: dict[str, Any]) -> Histogram:
    bins, top = figures["bins"], figures["top"]
    width, largest = 100 / len(bins), max(bins) or 1
    bars = []
    for number, count in enumerate(bins):
        height = round(HEIGHT * count / largest, 2)
        low, high = (top + 1) * number // len(bins), (top + 1) * (number + 1) // len(bins) - 1
        last = number == len(bins) - 1
        reach = f"{low:,} and more" if last else f"{low:,} to {max(low, high):,}"
        label = f"{reach} {unit}: {count:,} rows"
        bars.append(
            HistogramBar(round(number * width, 2), round(HEIGHT - height, 2), round(width * 0.86, 2), height, label)
        )
    return Histogram(title, unit, bars, figures)

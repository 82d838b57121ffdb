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
    """Bar of a histogram. Coordinates are relative to a drawing that is 100 wide and 40 high."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Histogram:
    """Distribution of lengths."""

    title: str
    unit: str
    bars: list[HistogramBar]
    figures: dict[str, Any]
    """The dict from statistics.Lengths.as_dict: top, median, p95, longest, mean and others."""

    @property
    def label(self) -> str:
        figures = self.figures
        return (
            f"Length of the {self.title.lower()} in {self.unit}: median {figures['median']:,}, "
            f"95 % at most {figures['p95']:,}, longest {figures['longest']:,}"
        )


@dataclass(frozen=True)
class Share:
    """Named count and its share of all rows; `width` is the width of its bar in percent."""

    name: str
    count: int
    share: float
    width: float


def histograms(statistics: dict[str, Any]) -> list[Histogram]:
    lengths = statistics.get("lengths") or {}
    return [_histogram(title, unit, lengths[name]) for name, title, unit in LENGTHS if lengths.get(name)]


def name_shares(name_counts: dict[str, Any] | None, rows: int) -> dict[str, Any] | None:
    """Return {"shares": those of the most frequent names, "rest": the number of rows with other names}, or None."""
    counts = (name_counts or {}).get("counts") or []
    if not counts:
        return None
    largest, listed_counts = max(entry["count"] for entry in counts), counts[:MAX_LISTED]
    shares = [
        Share(entry["name"], entry["count"], entry["count"] / max(1, rows), round(100 * entry["count"] / largest, 2))
        for entry in listed_counts
    ]
    other_rows = sum(entry["count"] for entry in counts[MAX_LISTED:])
    return {"shares": shares, "rest": other_rows + int((name_counts or {}).get("others") or 0)}


def _histogram(title: str, unit: str, figures: dict[str, Any]) -> Histogram:
    bins, maximum = figures["bins"], figures["top"]
    width, largest = 100 / len(bins), max(bins) or 1
    bars = []
    for index, count in enumerate(bins):
        height = round(HEIGHT * count / largest, 2)
        first, last = (maximum + 1) * index // len(bins), (maximum + 1) * (index + 1) // len(bins) - 1
        is_last = index == len(bins) - 1
        range_label = f"{first:,} and more" if is_last else f"{first:,} to {max(first, last):,}"
        label = f"{range_label} {unit}: {count:,} row{'' if count == 1 else 's'}"
        bars.append(
            HistogramBar(round(index * width, 2), round(HEIGHT - height, 2), round(width * 0.86, 2), height, label)
        )
    return Histogram(title, unit, bars, figures)

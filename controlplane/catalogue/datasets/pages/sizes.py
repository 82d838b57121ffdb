"""A rule of thumb for small models: the usual purpose of a dataset by its size, and its cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    least: int
    """Rows, from and with."""
    most: int | None
    """Rows, up to and without; None: any number."""
    time: str
    memory: str
    use: str

    def holds(self, rows: int) -> bool:
        return self.least <= rows and (self.most is None or rows < self.most)


GUIDE = (
    Size(1_000, 5_000, "1–3 hours", "16 GB and more", "trying things out"),
    Size(10_000, 50_000, "6–24 hours", "24 GB and more", "small training runs"),
    Size(50_000, 100_000, "1–3 days", "40 GB and more", "production training"),
    Size(100_000, None, "3 days and more", "48 GB and more", "large training runs"),
)
"""Rows -> time on one GPU and GPU memory. Between 5,000 and 10,000 rows the guide says nothing: between both."""


def place(rows: int) -> str:
    """The guide's entry for this number of rows, in words."""
    for size in GUIDE:
        if size.holds(rows):
            return f"{size.time} and {size.memory} of GPU memory are usual; good for {size.use}."
    if rows < GUIDE[0].least:
        return "Fewer than the guide begins with: enough to see that everything works, and for narrow tasks."
    return "Between testing (1–3 hours, 16 GB) and small training runs (6–24 hours, 24 GB)."

"""Text can be read in both themes: each ink on each background that it may stand on, by WCAG 2.2's AA (4.5 to 1)."""

from __future__ import annotations

import re

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT

TOKENS = (ROOT / "frontend/static/css/tokens.css").read_text()
PAIRS = dict(re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\)", TOKENS))
INKS = ("ink-1", "ink-2", "ink-3", "accent", "good", "warn", "bad", "above", "below")
BACKGROUNDS = sorted(name for name in PAIRS if name.startswith("surface-") or name.endswith("-wash"))


def luminance(colour: str) -> float:
    """Relative luminance, 0 to 1, of #rrggbb as WCAG defines it."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, background: str, theme: int) -> float:
    one, other = (luminance(PAIRS[name].split(", ")[theme]) for name in (ink, background))
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_background(theme: int) -> None:
    assert len(BACKGROUNDS) >= 8
    pairs = [(ink, background) for ink in INKS for background in BACKGROUNDS] + [("accent-ink", "accent")]
    weak = {pair: round(contrast(*pair, theme), 2) for pair in pairs if contrast(*pair, theme) < 4.5}
    assert weak == {}

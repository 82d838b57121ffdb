"""The difference between two texts, line by line."""

from difflib import unified_diff

from controlplane.platform.confined.tasks import ConfinedTask

MAX_LINES = 200
"""Maximum number of diff lines shown for one parameter."""


def diff(old_text: str, new_text: str) -> tuple[str, ...]:
    """Return up to MAX_LINES diff lines and the number of others. The time may grow with the square of the texts'
    lengths."""
    lines = list(unified_diff(old_text.splitlines(), new_text.splitlines(), lineterm="", n=2))[2:]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f" … {len(lines) - MAX_LINES} more lines"]
    return tuple(lines)


between = ConfinedTask(diff, "Comparing these versions")

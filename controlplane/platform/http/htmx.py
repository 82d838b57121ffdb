"""What htmx understands beyond HTTP."""

STOP_POLLING = 286
"""The status for "swap, then stop polling"."""

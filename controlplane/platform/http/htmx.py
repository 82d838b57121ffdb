"""Response headers of htmx."""

STOP_POLLING = 286
"""The status for "swap, then stop polling"."""

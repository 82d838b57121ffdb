"""What accounts tells the rooms above it, which connect when Django starts."""

from __future__ import annotations

from django.dispatch import Signal

sign_in_changed = Signal()
"""`user_id`: a password, a sign-out or an account that was disabled. Sent after the commit."""
limits_raised = Signal()
"""A person's limits on runs changed, so a queued run may start. Sent after the commit."""

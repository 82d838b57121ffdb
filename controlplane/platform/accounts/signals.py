"""Signals of accounts to the rooms above, which connect when Django starts."""

from __future__ import annotations

from django.dispatch import Signal

sign_in_changed = Signal()
"""`user_id`: a changed password, a sign-out or a disabled account. Sent after the commit."""
limits_raised = Signal()
"""A user's run limits changed, so a queued run may start. Sent after the commit."""

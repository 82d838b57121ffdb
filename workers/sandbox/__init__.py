"""Runs untrusted code: model-written code, and reward code written by admins. Standard library only."""

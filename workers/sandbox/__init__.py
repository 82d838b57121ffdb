"""The sandbox: runs untrusted code, written by models or admins. Uses the standard library only."""

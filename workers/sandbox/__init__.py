"""The sandbox, which runs untrusted code written by models or admins. It uses only the standard library."""

"""What the other interpreter imports: its own package, and the standard library."""

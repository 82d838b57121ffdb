"""The modules that the other interpreter imports, with its own packages and the standard library only."""

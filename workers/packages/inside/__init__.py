"""Modules that the other interpreter imports; they use only its packages and the standard library."""

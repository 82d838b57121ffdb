"""Deletion of runs and of the catalogue's items, which can be restored for a while, and renaming."""

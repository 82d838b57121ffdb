"""Deleting runs and the catalogue's items so that they can be restored for a while, and renaming them."""

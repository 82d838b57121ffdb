"""What reward configs and environments share: named items with versions, each composed of entries of a library."""

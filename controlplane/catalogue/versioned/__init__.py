"""Named items with versions, each composed of entries of a library: reward configs and environments."""

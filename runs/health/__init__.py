"""Rules that read what a run is and what it wrote, and say whether it is well."""

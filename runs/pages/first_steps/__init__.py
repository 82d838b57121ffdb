"""First steps: what an installation still needs for a run, and recipes that include a dataset and rewards."""

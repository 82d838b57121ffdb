"""First steps: what an installation still lacks for a run, and recipes that bring a dataset and rewards along."""

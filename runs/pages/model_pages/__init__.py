"""The Models page, and the page of each model that a run has saved."""

"""The guide: the words of GRPO, the documentation, and whether a person has seen the tour."""

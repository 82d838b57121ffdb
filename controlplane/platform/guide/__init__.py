"""The guide: a glossary of GRPO, the documentation, and whether a person has seen the tour."""

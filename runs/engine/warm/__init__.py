"""Warm servers: vLLM that stays for the next run of the same person, model and server settings."""

"""Warm servers: vLLM servers kept for the next run with the same owner, model and server settings."""

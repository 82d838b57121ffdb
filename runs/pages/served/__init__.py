"""Served models: chat with a checkpoint and with the model before its training, and requests with a key."""

"""Served models: chat with a checkpoint beside the model before its training, and requests with a key."""

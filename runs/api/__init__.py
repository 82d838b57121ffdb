"""The API for people's programs, /api/v1/: personal tokens, JSON, described by OpenAPI.

Thin over what the pages call: the same gates, the same preflight, the same actions. It has no rules of its own.
"""

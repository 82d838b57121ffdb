"""Public HTTP API at /api/v1/: JSON, personal tokens, an OpenAPI description.

A thin layer over the functions that the pages call. It adds no rules to their permission checks, preflight and actions.
"""

"""Runs untrusted code: model-written code, and reward code written by admins. Standard library only."""

from workers.sandbox.layout import Interpreter
from workers.sandbox.outcomes import (
    Backend,
    Job,
    Kind,
    Limits,
    Outcome,
    Program,
    SandboxUnavailable,
    TestJob,
    TestOutcome,
    TestResult,
)
from workers.sandbox.pool import Sandbox
from workers.sandbox.selftest import best as best_backend

__all__ = [
    "Backend",
    "Interpreter",
    "Job",
    "Kind",
    "Limits",
    "Outcome",
    "Program",
    "Sandbox",
    "SandboxUnavailable",
    "TestJob",
    "TestOutcome",
    "TestResult",
    "best_backend",
]

"""The packages that run in an interpreter of their own: reasoning-gym, TextArena and OpenEnv."""

from __future__ import annotations

ENVIRONMENT = ".venv-environments"
"""Beside the source."""
GROUP = "environments"
"""What builds it: `python3 -m controlplane.setup.bootstrap.on_demand environments`."""
PYTHON = "GRPO_ENVIRONMENTS_PYTHON"
"""Names another interpreter that has them."""
REASONING_GYM, TEXTARENA, OPENENV = "reasoning-gym", "textarena", "openenv"
ALL = (REASONING_GYM, TEXTARENA, OPENENV)
"""Names of distributions; a host announces their versions as `packages`."""

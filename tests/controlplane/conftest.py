from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    """The real hasher is slow on purpose; these tests sign in a hundred times."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

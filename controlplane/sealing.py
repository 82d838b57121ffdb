"""Small secrets at rest: sealed with a key made of the installation's own, so a copy of the database opens none."""

from __future__ import annotations

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class CannotOpen(Exception):
    """It was sealed with another secret key than this installation's."""


def seal(text: str) -> str:
    return _box(_keys()).encrypt(text.encode()).decode("ascii")


def unseal(sealed: str) -> str:
    try:
        return _box(_keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise CannotOpen(CannotOpen.__doc__) from None


def _keys() -> tuple[str, ...]:
    """The first one seals; what earlier ones sealed can still be opened."""
    return (settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    # A key of its own: what Django signs with the secret key tells nothing about what is sealed.
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"sealed at rest").derive(key.encode())
    return base64.urlsafe_b64encode(derived)

"""Encryption of small secrets at rest, with a key derived from the installation's key outside the database."""

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class CannotOpen(Exception):
    """It was encrypted with another installation's secret key."""


def seal(plaintext: str) -> str:
    return _box(_keys()).encrypt(plaintext.encode()).decode("ascii")


def unseal(sealed: str) -> str:
    try:
        return _box(_keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise CannotOpen(CannotOpen.__doc__) from None


def _keys() -> tuple[str, ...]:
    """Return the encryption keys: the first encrypts, the others only decrypt older secrets."""
    return (settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    def derived(key: str) -> bytes:
        # A separate key: signatures made with Django's secret key reveal nothing about it.
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"sealed at rest").derive(key.encode())

    return MultiFernet([Fernet(base64.urlsafe_b64encode(derived(key))) for key in keys])

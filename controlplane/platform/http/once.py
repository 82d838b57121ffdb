"""Texts that a page shows once, after the redirect of a form: reloading the page repeats nothing.

It is kept in the session, encrypted: the table of sessions reveals no token, and a message would store it in a cookie.
"""

from __future__ import annotations

import json

from django.http import HttpRequest

from controlplane.platform.sealing import seal, unseal


def keep(request: HttpRequest, of: str, *words: str) -> None:
    """`of`: the page and what it is about; the page gives it to `take`."""
    request.session[f"once {of}"] = seal(json.dumps(words))


def take(request: HttpRequest, of: str) -> list[str]:
    """The words, the first time that somebody looks; else none."""
    kept = request.session.pop(f"once {of}", None) if request.method == "GET" else None
    return json.loads(unseal(kept)) if kept else []

"""An OpenID provider on loopback: discovery, authorize (signs in whoever comes), token with a signed JWT, keys, user
info. Its attributes say who signs in, and how it misbehaves."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "the client", "the client's secret"


class Provider(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = _new_key()
        self.person: dict[str, Any] = {"sub": "s1", "preferred_username": "anna", "email": "anna@example.test"}
        self.claims: dict[str, Any] = {}
        """Put over those of the ID token."""
        self.signs_with = self.key
        self.kid: dict[str, str] = {"kid": "k1"}
        """What names the key, in its own list and in tokens."""
        self.more_keys = 0
        self.named_issuer = self.issuer
        """By the discovery document."""
        self.says_no = False
        self.codes: dict[str, dict[str, str]] = {}

    def id_token(self) -> str:
        now = int(time.time())
        lasting = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60}
        return jwt.encode({**lasting, **self.person, **self.claims}, self.signs_with, "RS256", headers=self.kid)


@contextmanager
def running() -> Iterator[Provider]:
    provider = Provider()
    thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        thread.join()
        provider.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        if path == "/.well-known/openid-configuration":
            ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            places = {name: self.server.issuer + end for name, end in {**ends, "userinfo_endpoint": "/me"}.items()}
            self._json(200, {"issuer": self.server.named_issuer, **places})
        elif path == "/keys":
            keys = [self.server.key, *(_new_key() for _ in range(self.server.more_keys))]
            public = [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) for key in keys]
            self._json(200, {"keys": [{**one, **self.server.kid} for one in public]})
        elif path == "/authorize":
            self._authorize(query)
        elif path == "/me" and self.headers["Authorization"] == "Bearer an access token":
            self._json(200, self.server.person)
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        sent = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        asked = self.server.codes.pop(sent.get("code", ""), None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(sent.get("code_verifier", "").encode()).digest())
        known = (sent.get("client_id"), sent.get("client_secret")) == (CLIENT, SECRET)
        if asked is None or not known or asked["code_challenge"] != proof.decode().rstrip("="):
            self._json(400, {"error": "invalid_grant"})
            return
        token = {"access_token": "an access token", "token_type": "Bearer", "expires_in": 60}
        self._json(200, {**token, "id_token": self.server.id_token()})

    def _authorize(self, asked: dict[str, str]) -> None:
        code = secrets.token_urlsafe(8)
        self.server.codes[code] = asked
        answer = {"error": "access_denied"} if self.server.says_no else {"code": code}
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode({**answer, 'state': asked['state']})}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)

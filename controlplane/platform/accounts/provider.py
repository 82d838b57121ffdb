"""Our OpenID Connect provider. allauth finds this module by its name.

Unlike with allauth's own provider class, there is exactly one provider, its discovery document must name the
configured issuer, the ID token's signature is always checked, and claims aren't stored.
"""

from typing import Any

import jwt
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest
from django.urls import reverse

from controlplane.platform.oidc import PROVIDER

ALGORITHMS = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "EC": ["ES256", "ES384", "ES512"],
    "OKP": ["EdDSA"],
}
"""Allowed signature algorithms by key type, all asymmetric, so that a public key can't serve as a shared secret."""


class Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    @property
    def openid_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().openid_config
        if str(config.get("issuer")).rstrip("/") != self.get_provider().app.settings["server_url"]:
            raise OAuth2Error("The provider's discovery document names another issuer.")
        return config

    def complete_login(self, request: HttpRequest, app: Any, token: SocialToken, **kwargs: Any) -> SocialLogin:
        claims = self._decode_id_token(app, kwargs["response"]["id_token"])
        if "userinfo_endpoint" in self.openid_config:
            user_info = self._fetch_user_info(token.token)
            if user_info.get("sub") != claims["sub"]:
                raise OAuth2Error("The provider's user info belongs to a different user.")
            claims = {**user_info, **claims}
        signing_in = self.get_provider().sociallogin_from_response(request, claims)
        signing_in.claims = claims
        return signing_in

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        try:
            key = _key_of(self._keys(), jwt.get_unverified_header(id_token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key=key.key,
                algorithms=ALGORITHMS[key.key_type or ""],
                audience=app.client_id,
                issuer=self.openid_config["issuer"],
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise OAuth2Error("The provider's ID token can't be used.") from error
        return claims

    def _keys(self) -> list[jwt.PyJWK]:
        with get_adapter().get_requests_session() as session:
            response = session.get(self.openid_config["jwks_uri"])
            response.raise_for_status()
        keys = jwt.PyJWKSet.from_dict(response.json()).keys
        return [key for key in keys if key.key_type in ALGORITHMS and key.public_key_use in (None, "sig")]

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return request.build_absolute_uri(reverse("oidc_callback"))


def _key_of(keys: list[jwt.PyJWK], kid: str | None) -> jwt.PyJWK:
    candidates = [key for key in keys if key.key_id == kid] if kid else keys
    if len(candidates) != 1:
        raise OAuth2Error("It is unclear which of the provider's keys signed the ID token.")
    return candidates[0]


class IdentityProvider(OpenIDConnectProvider):  # type: ignore[misc]  # as above
    id = PROVIDER
    oauth2_adapter_class = Adapter

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {}


provider_classes = [IdentityProvider]

"""Our OpenID Connect provider; allauth looks for this module by its name.

It differs from allauth's: there is one, its discovery document must name the issuer that the settings name, the ID
token's signature is always checked, and claims aren't stored.
"""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest
from django.urls import reverse

from controlplane.oidc import PROVIDER


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
            told = self._fetch_user_info(token.token)
            if told.get("sub") != claims["sub"]:
                raise OAuth2Error("The provider's user info is about somebody else.")
            claims = {**told, **claims}
        signing_in = self.get_provider().sociallogin_from_response(request, claims)
        signing_in.claims = claims
        return signing_in

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        claims: dict[str, Any] = jwtkit.verify_and_decode(
            credential=id_token,
            keys_url=self.openid_config["jwks_uri"],
            issuer=self.openid_config["issuer"],
            audience=app.client_id,
            lookup_kid=jwtkit.lookup_kid_jwk,
        )
        return claims

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return request.build_absolute_uri(reverse("oidc_callback"))


class Provider(OpenIDConnectProvider):  # type: ignore[misc]  # as above
    id = PROVIDER
    oauth2_adapter_class = Adapter

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {}


provider_classes = [Provider]

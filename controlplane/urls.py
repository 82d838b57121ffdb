"""The URLs of the installation: those of the platform, and the included URLs of runs and the catalogue."""

from django.urls import include, path

from controlplane.platform.accounts import api_token_views, oidc, users, views
from controlplane.platform.activity import views as activity_views
from controlplane.platform.guide import documents

urlpatterns = [
    path("", include("runs.urls")),
    # Accounts
    path("sign-in/", views.sign_in, name="sign_in"),
    path("sign-in/once/<str:token>/", views.sign_in_once, name="sign_in_once"),
    path("sign-in/oidc/", oidc.begin, name="oidc_sign_in"),
    path("sign-in/oidc/callback/", oidc.callback, name="oidc_callback"),
    path("sign-out/", views.sign_out, name="sign_out"),
    path("password/", views.password, name="password"),
    path("password/set/", views.password, name="set_password"),
    path("settings/", views.settings, name="settings"),
    path("settings/tokens/", api_token_views.tokens, name="api_tokens"),
    path("settings/tokens/<int:token_id>/revoke/", api_token_views.revoke, name="api_token_revoke"),
    path("users/", users.users, name="users"),
    path("users/<int:user_id>/", users.edit, name="user_edit"),
    path("users/<int:user_id>/active/", users.active, name="user_active"),
    path("users/<int:user_id>/link/", users.link, name="user_link"),
    # The events
    path("events/", activity_views.events, name="events"),
    path("events/csv", activity_views.events_csv, name="events_csv"),
    # The guide; after help/api/ of runs
    path("glossary/", documents.glossary, name="glossary"),
    path("help/", documents.document, name="documents"),
    path("help/tour", documents.tour_seen, name="tour_seen"),
    path("help/<slug:document>/", documents.document, name="document"),
    path("", include("controlplane.catalogue.urls")),
]

handler400 = "controlplane.platform.http.errors.bad_request"
handler403 = "controlplane.platform.http.errors.forbidden"
handler404 = "controlplane.platform.http.errors.not_found"
handler500 = "controlplane.platform.http.errors.server_error"

from django.urls import include, path

urlpatterns = [
    path("", include("controlplane.accounts.urls")),
    path("", include("runs.urls")),
    path("datasets/", include("controlplane.datasets.urls")),
    path("rewards/", include("controlplane.rewards.urls")),
    path("hardware/", include("controlplane.hardware.urls")),
    path("settings/alerts/", include("controlplane.alerting.urls")),
    path("api/", include("controlplane.hardware.api_urls")),
    path("api/", include("controlplane.datasets.api_urls")),
]

handler400 = "controlplane.accounts.errors.bad_request"
handler403 = "controlplane.accounts.errors.forbidden"
handler404 = "controlplane.accounts.errors.not_found"
handler500 = "controlplane.accounts.errors.server_error"

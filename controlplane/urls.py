from django.urls import include, path

urlpatterns = [
    path("", include("controlplane.accounts.urls")),
    path("", include("runs.urls")),
    path("datasets/", include("controlplane.datasets.urls")),
    path("rewards/", include("controlplane.rewards.urls")),
    path("hardware/", include("controlplane.hardware.urls")),
]

from django.urls import include, path

from controlplane.joining import views as joining_views
from workers.contract.joining import JOIN

urlpatterns = [
    path("", include("controlplane.accounts.urls")),
    path("events/", include("controlplane.activity.urls")),
    path("", include("runs.urls")),
    path("", include("controlplane.guide.urls")),  # after help/api/ of the runs
    path("datasets/references/", include("controlplane.references.urls")),
    path("datasets/", include("controlplane.datasets.urls")),
    path("rewards/", include("controlplane.rewards.urls")),
    path("environments/", include("controlplane.environments.urls")),
    path("hardware/profiles/", include("controlplane.hardware.urls")),
    path(JOIN.removeprefix("/"), joining_views.join, name="api_host_join"),
]

handler400 = "controlplane.http.errors.bad_request"
handler403 = "controlplane.http.errors.forbidden"
handler404 = "controlplane.http.errors.not_found"
handler500 = "controlplane.http.errors.server_error"

from django.urls import include, path

from controlplane.catalogue.joining import views as joining_views
from workers.contract.wire.joining import JOIN

urlpatterns = [
    path("", include("runs.urls")),
    path("", include("controlplane.platform.urls")),  # after help/api/ of runs
    path("datasets/references/", include("controlplane.catalogue.references.urls")),
    path("datasets/", include("controlplane.catalogue.datasets.pages.urls")),
    path("rewards/", include("controlplane.catalogue.rewards.urls")),
    path("environments/", include("controlplane.catalogue.environments.urls")),
    path("hardware/profiles/", include("controlplane.catalogue.hardware.profile_pages.urls")),
    path(JOIN.removeprefix("/"), joining_views.join, name="api_host_join"),
]

handler400 = "controlplane.platform.http.errors.bad_request"
handler403 = "controlplane.platform.http.errors.forbidden"
handler404 = "controlplane.platform.http.errors.not_found"
handler500 = "controlplane.platform.http.errors.server_error"

from django.urls import include, path

urlpatterns = [
    path("", include("runs.urls")),
    path("", include("controlplane.platform.urls")),  # after help/api/ of runs
    path("", include("controlplane.catalogue.urls")),
]

handler400 = "controlplane.platform.http.errors.bad_request"
handler403 = "controlplane.platform.http.errors.forbidden"
handler404 = "controlplane.platform.http.errors.not_found"
handler500 = "controlplane.platform.http.errors.server_error"

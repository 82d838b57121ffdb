"""The addresses of runs; each room has its own."""

from django.urls import include, path

urlpatterns = [
    path("", include("runs.new_run.urls")),
    path("", include("runs.host_api.urls")),
    path("", include("runs.run_list.urls")),
    path("", include("runs.compare.urls")),
    path("", include("runs.health.urls")),
    path("", include("runs.completions.urls")),
    path("", include("runs.metrics.urls")),
    path("runs/<slug:run_id>/", include("runs.run_page.urls")),
    path("settings/secrets/", include("runs.secrets.urls")),
    path("settings/alerts/", include("runs.alerts.urls")),
    path("rewards/", include("runs.playground.urls")),
    path("hardware/", include("runs.hosts.urls")),
    path("api/", include("runs.hosts.api_urls")),
]

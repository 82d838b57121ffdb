"""Pages of runs; each flow's addresses are in a module of its own."""

from django.urls import include, path

from runs import views

urlpatterns = [
    path("", include("runs.launch_urls")),
    path("", include("runs.api_urls")),
    path("", include("runs.list_urls")),
    path("", include("runs.compare_urls")),
    path("", include("runs.health_urls")),
    path("", include("runs.completion_urls")),
    path("", include("runs.about_urls")),
    path("", include("runs.log_urls")),
    path("", include("runs.series_urls")),
    path("runs/<slug:run_id>/", views.run, name="run"),
    path("runs/<slug:run_id>/head/", views.head, name="run_head"),
    path("runs/<slug:run_id>/checkpoints/", views.checkpoints, name="run_checkpoints"),
    path("runs/<slug:run_id>/spec/", views.spec, name="run_spec"),
    path("runs/<slug:run_id>/stop", views.stop, name="run_stop"),
    path("runs/<slug:run_id>/resume", views.resume, name="run_resume"),
]

"""Pages of runs; each flow's addresses are in a module of its own."""

from django.urls import include, path

from runs.run_page import views

urlpatterns = [
    path("", include("runs.new_run.urls")),
    path("", include("runs.host_api.urls")),
    path("", include("runs.run_list.urls")),
    path("", include("runs.compare.urls")),
    path("", include("runs.health.urls")),
    path("", include("runs.completions.urls")),
    path("", include("runs.about_urls")),
    path("", include("runs.log_urls")),
    path("", include("runs.metrics.urls")),
    path("runs/<slug:run_id>/", views.run, name="run"),
    path("runs/<slug:run_id>/head/", views.head, name="run_head"),
    path("runs/<slug:run_id>/checkpoints/", views.checkpoints, name="run_checkpoints"),
    path("runs/<slug:run_id>/spec/", views.spec, name="run_spec"),
    path("runs/<slug:run_id>/stop", views.stop, name="run_stop"),
    path("runs/<slug:run_id>/resume", views.resume, name="run_resume"),
]

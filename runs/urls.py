"""Pages of runs; the New run page and what hosts talk to come first, from modules of their own."""

from django.urls import include, path

from runs import views

urlpatterns = [
    path("", include("runs.launch_urls")),
    path("", include("runs.api_urls")),
    path("", views.home, name="home"),
    path("runs/", views.runs, name="runs"),
    path("runs/stop", views.stop_several, name="stop_several"),
    path("runs/<slug:run_id>/", views.run, name="run"),
    path("runs/<slug:run_id>/head/", views.head, name="run_head"),
    path("runs/<slug:run_id>/series.json", views.series, name="run_series"),
    path("runs/<slug:run_id>/completions/", views.completions, name="run_completions"),
    path("runs/<slug:run_id>/logs/", views.logs, name="run_logs"),
    path("runs/<slug:run_id>/logs/<str:name>", views.log, name="run_log"),
    path("runs/<slug:run_id>/events/", views.events, name="run_events"),
    path("runs/<slug:run_id>/checkpoints/", views.checkpoints, name="run_checkpoints"),
    path("runs/<slug:run_id>/spec/", views.spec, name="run_spec"),
    path("runs/<slug:run_id>/stop", views.stop, name="run_stop"),
    path("runs/<slug:run_id>/resume", views.resume, name="run_resume"),
]

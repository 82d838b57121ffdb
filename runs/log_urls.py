"""Addresses of the logs and the timeline."""

from django.urls import path

from runs.run_page import log_views

urlpatterns = [
    path("runs/<slug:run_id>/logs/", log_views.logs, name="run_logs"),
    path("runs/<slug:run_id>/logs/<str:name>", log_views.log, name="run_log"),
    path("runs/<slug:run_id>/logs/<str:name>/search", log_views.search, name="run_log_search"),
    path("runs/<slug:run_id>/events/", log_views.events, name="run_events"),
]

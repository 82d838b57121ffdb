"""Addresses of the numbers that charts are drawn from."""

from django.urls import path

from runs import series_views

urlpatterns = [
    path("runs/<slug:run_id>/series.json", series_views.series, name="run_series"),
    path("runs/<slug:run_id>/metrics.json", series_views.metrics, name="run_metrics"),
]

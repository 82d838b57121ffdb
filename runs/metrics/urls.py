"""Addresses of the numbers that charts are drawn from."""

from django.urls import path

from runs.metrics import views

urlpatterns = [
    path("runs/<slug:run_id>/series.json", views.series, name="run_series"),
    path("runs/<slug:run_id>/metrics.json", views.metrics, name="run_metrics"),
]

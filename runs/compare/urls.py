"""Addresses of the comparison."""

from django.urls import path

from runs.compare import views

urlpatterns = [
    path("runs/compare/", views.compare, name="compare_runs"),
    path("runs/compare/table/", views.table, name="compare_table"),
    path("runs/compare/series.json", views.series, name="compare_series"),
    path("runs/compare/prompts/", views.prompts, name="compare_prompts"),
]

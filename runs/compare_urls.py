"""Addresses of the comparison."""

from django.urls import path

from runs import compare_views

urlpatterns = [
    path("runs/compare/", compare_views.compare, name="compare_runs"),
    path("runs/compare/table/", compare_views.table, name="compare_table"),
    path("runs/compare/series.json", compare_views.series, name="compare_series"),
    path("runs/compare/prompts/", compare_views.prompts, name="compare_prompts"),
]

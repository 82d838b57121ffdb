"""Addresses of a run's tags and notes."""

from django.urls import path

from runs import about_views

urlpatterns = [
    path("runs/<slug:run_id>/about/", about_views.about, name="run_about"),
    path("runs/<slug:run_id>/tags", about_views.tags, name="run_tags"),
    path("runs/<slug:run_id>/notes", about_views.write_notes, name="run_notes"),
]

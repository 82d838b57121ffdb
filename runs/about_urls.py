"""Addresses of a run's tags and notes."""

from django.urls import path

from runs.run_page import notes_and_tags_views

urlpatterns = [
    path("runs/<slug:run_id>/about/", notes_and_tags_views.about, name="run_about"),
    path("runs/<slug:run_id>/tags", notes_and_tags_views.tags, name="run_tags"),
    path("runs/<slug:run_id>/notes", notes_and_tags_views.write_notes, name="run_notes"),
]

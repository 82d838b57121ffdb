"""Addresses of the list of runs."""

from django.urls import path

from runs import list_views

urlpatterns = [
    path("", list_views.home, name="home"),
    path("runs/", list_views.runs, name="runs"),
    path("runs/stop", list_views.stop_several, name="stop_several"),
    path("runs/archive", list_views.archive_several, name="archive_several"),
    path("runs/unarchive", list_views.unarchive_several, name="unarchive_several"),
    path("runs/tag", list_views.tag_several, name="tag_several"),
    path("runs/views", list_views.save_view, name="save_view"),
    path("runs/views/<int:view_id>/delete", list_views.delete_view, name="delete_view"),
]

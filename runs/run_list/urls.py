"""Addresses of the list of runs."""

from django.urls import path

from runs.run_list import views

urlpatterns = [
    path("", views.home, name="home"),
    path("runs/", views.runs, name="runs"),
    path("runs/stop", views.stop_several, name="stop_several"),
    path("runs/archive", views.archive_several, name="archive_several"),
    path("runs/unarchive", views.unarchive_several, name="unarchive_several"),
    path("runs/tag", views.tag_several, name="tag_several"),
    path("runs/views", views.save_view, name="save_view"),
    path("runs/views/<int:view_id>/delete", views.delete_view, name="delete_view"),
]

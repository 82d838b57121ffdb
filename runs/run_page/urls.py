from django.urls import path

from runs.run_page import log_views, notes_and_tags_views, views

urlpatterns = [
    path("", views.run, name="run"),
    path("head/", views.head, name="run_head"),
    path("checkpoints/", views.checkpoints, name="run_checkpoints"),
    path("spec/", views.spec, name="run_spec"),
    path("stop", views.stop, name="run_stop"),
    path("resume", views.resume, name="run_resume"),
    path("about/", notes_and_tags_views.about, name="run_about"),
    path("tags", notes_and_tags_views.tags, name="run_tags"),
    path("notes", notes_and_tags_views.write_notes, name="run_notes"),
    path("logs/", log_views.logs, name="run_logs"),
    path("logs/<str:name>", log_views.log, name="run_log"),
    path("logs/<str:name>/search", log_views.search, name="run_log_search"),
    path("events/", log_views.events, name="run_events"),
]

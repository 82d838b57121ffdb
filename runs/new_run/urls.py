"""The New run page. Before the run pages in runs.urls: `new` is not a run's id."""

from django.urls import path

from runs.new_run import views

urlpatterns = [
    path("runs/new/", views.new_run, name="new_run"),
    path("runs/new/check", views.check_run, name="check_run"),
    path("runs/new/commands", views.commands, name="launch_commands"),
    path("runs/new/dry-run", views.dry_run, name="dry_run"),
    path("runs/new/model", views.inspect_model, name="inspect_model"),
    path("runs/new/model/<int:inspection_id>", views.inspection, name="inspection"),
    path("runs/<slug:run_id>/clone/", views.clone, name="clone"),
    path("runs/<slug:run_id>/dry-run", views.run_dry_run, name="run_dry_run"),
]

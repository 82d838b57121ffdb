"""The New run page. Before the run pages in runs.urls: `new` is not a run's id."""

from django.urls import path

from runs import launch_views

urlpatterns = [
    path("runs/new/", launch_views.new_run, name="new_run"),
    path("runs/new/check", launch_views.check_run, name="check_run"),
    path("runs/new/commands", launch_views.commands, name="launch_commands"),
    path("runs/new/dry-run", launch_views.dry_run, name="dry_run"),
    path("runs/new/model", launch_views.inspect_model, name="inspect_model"),
    path("runs/new/model/<int:inspection_id>", launch_views.inspection, name="inspection"),
    path("runs/<slug:run_id>/clone/", launch_views.clone, name="clone"),
    path("runs/<slug:run_id>/dry-run", launch_views.run_dry_run, name="run_dry_run"),
]

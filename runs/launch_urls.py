"""The New run page. Before the run pages in runs.urls: `new` is not a run's id."""

from django.urls import path

from runs import launch_views

urlpatterns = [
    path("runs/new/", launch_views.new_run, name="new_run"),
    path("runs/new/check", launch_views.check_run, name="check_run"),
    path("runs/new/model", launch_views.inspect_model, name="inspect_model"),
    path("runs/new/model/<int:inspection_id>", launch_views.inspection, name="inspection"),
    path("runs/<slug:run_id>/clone/", launch_views.clone, name="clone"),
]

from django.urls import include, path

from controlplane.catalogue.datasets.pages import (
    adding_views,
    look_views,
    mapping_views,
    version_views,
    views,
)

VERSION = "<int:dataset_id>/<int:number>/"

urlpatterns = [
    path("", views.datasets, name="datasets"),
    path("name/", views.name, name="dataset_name"),
    path("upload/", adding_views.upload, name="dataset_upload"),
    path("rows/", adding_views.rows, name="dataset_typed"),
    path("sample.<slug:kind>", adding_views.sample, name="dataset_sample"),
    path("corpora/", include("controlplane.catalogue.datasets.corpora.urls")),
    path("hub/", adding_views.hub, name="dataset_hub"),
    path("path/", adding_views.path, name="dataset_path"),
    path("tasks/", adding_views.tasks, name="dataset_tasks"),
    path("<int:dataset_id>/", views.dataset, name="dataset"),
    path("<int:dataset_id>/upload/", adding_views.upload, name="dataset_upload_version"),
    path("<int:dataset_id>/rows/", adding_views.rows, name="dataset_typed_version"),
    path("<int:dataset_id>/hub/", adding_views.hub, name="dataset_hub_version"),
    path("<int:dataset_id>/path/", adding_views.path, name="dataset_path_version"),
    path("<int:dataset_id>/tasks/", adding_views.tasks, name="dataset_tasks_version"),
    path(VERSION, views.dataset, name="dataset_version"),
    path(f"{VERSION}state/", views.state, name="dataset_state"),
    path(f"{VERSION}report/", look_views.report, name="dataset_report"),
    path(f"{VERSION}problems.jsonl", look_views.problems, name="dataset_problems"),
    path(f"{VERSION}rows/", look_views.rows, name="dataset_rows"),
    path(f"{VERSION}rows/<int:row>/", look_views.row, name="dataset_row"),
    path(f"{VERSION}export/", look_views.export, name="dataset_export"),
    path(f"{VERSION}derive/", look_views.derive, name="dataset_derive"),
    path(f"{VERSION}example/", mapping_views.example, name="dataset_example"),
    path(f"{VERSION}mapping/", mapping_views.mapping, name="dataset_mapping"),
    path(f"{VERSION}leave-out/", mapping_views.leave_out, name="dataset_leave_out"),
    path(f"{VERSION}again/", mapping_views.map_again, name="dataset_map_again"),
    path(f"{VERSION}cancel/", version_views.cancel, name="dataset_cancel"),
    path(f"{VERSION}try-again/", version_views.try_again, name="dataset_try_again"),
    path(f"{VERSION}archive/", version_views.archive, name="dataset_archive"),
    path(f"{VERSION}unarchive/", version_views.unarchive, name="dataset_unarchive"),
    path(f"{VERSION}delete/", version_views.delete_version, name="dataset_version_delete"),
]

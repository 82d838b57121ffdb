from django.urls import path

from controlplane.datasets import views

urlpatterns = [
    path("", views.datasets, name="datasets"),
    path("upload/", views.upload, name="dataset_upload"),
    path("<int:dataset_id>/", views.dataset, name="dataset"),
    path("<int:dataset_id>/upload/", views.upload_version, name="dataset_upload_version"),
    path("<int:dataset_id>/delete/", views.delete, name="dataset_delete"),
    path("<int:dataset_id>/<int:number>/", views.dataset, name="dataset_version"),
    path("<int:dataset_id>/<int:number>/state/", views.state, name="dataset_state"),
    path("<int:dataset_id>/<int:number>/example/", views.example, name="dataset_example"),
    path("<int:dataset_id>/<int:number>/mapping/", views.mapping, name="dataset_mapping"),
    path("<int:dataset_id>/<int:number>/leave-out/", views.leave_out, name="dataset_leave_out"),
    path("<int:dataset_id>/<int:number>/again/", views.map_again, name="dataset_map_again"),
    path("<int:dataset_id>/<int:number>/delete/", views.delete_version, name="dataset_version_delete"),
]

from django.urls import path

from runs.hosts import api

urlpatterns = [
    path("hosts/announce", api.announce, name="api_host_announce"),
    path("inspections/<int:inspection_id>", api.inspection, name="api_inspection"),
]

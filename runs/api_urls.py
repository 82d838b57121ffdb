"""The API of attempts, for hosts."""

from django.urls import path

from runs import api

urlpatterns = [
    path("api/attempts/<slug:attempt_id>/claim", api.claim, name="api_claim"),
    path("api/attempts/<slug:attempt_id>/dataset", api.dataset, name="api_dataset"),
    path("api/attempts/<slug:attempt_id>/sync", api.sync, name="api_sync"),
    path("api/attempts/<slug:attempt_id>/samples", api.samples, name="api_samples"),
    path("api/attempts/<slug:attempt_id>/logs/<slug:name>", api.logs, name="api_logs"),
    path("api/attempts/<slug:attempt_id>/reaped", api.reaped, name="api_reaped"),
]

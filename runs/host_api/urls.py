"""The API of attempts, for hosts, and the websockets."""

from typing import Any

from django.urls import path

from runs.host_api import views
from runs.live import consumers

urlpatterns = [
    path("api/attempts/<slug:attempt_id>/claim", views.claim, name="api_claim"),
    path("api/attempts/<slug:attempt_id>/dataset", views.dataset, name="api_dataset"),
    path("api/attempts/<slug:attempt_id>/sync", views.sync, name="api_sync"),
    path("api/attempts/<slug:attempt_id>/samples", views.samples, name="api_samples"),
    path("api/attempts/<slug:attempt_id>/logs/<slug:name>", views.logs, name="api_logs"),
    path("api/attempts/<slug:attempt_id>/reaped", views.reaped, name="api_reaped"),
    path("api/attempts/<slug:attempt_id>/not_launched", views.not_launched, name="api_not_launched"),
]

# Django's `path` is typed for views; Channels' router takes ASGI applications in their place.
_socket: Any = path
websocket_urlpatterns: list[Any] = [
    _socket("ws/runs/", consumers.RunListConsumer.as_asgi()),
    _socket("ws/runs/<slug:run_id>/", consumers.RunConsumer.as_asgi()),
]

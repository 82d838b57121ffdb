"""Acts on the queue, which the Hardware page shows."""

from django.urls import path

from runs import queue_views

urlpatterns = [
    path("<slug:run_id>/move", queue_views.queue_move, name="queue_move"),
    path("<slug:run_id>/priority", queue_views.queue_priority, name="queue_priority"),
    path("<slug:run_id>/remove/", queue_views.queue_remove, name="queue_remove"),
]

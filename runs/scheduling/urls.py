"""Acts on the queue, which the Hardware page shows."""

from django.urls import path

from runs.scheduling import views

urlpatterns = [
    path("<slug:run_id>/move", views.queue_move, name="queue_move"),
    path("<slug:run_id>/priority", views.queue_priority, name="queue_priority"),
    path("<slug:run_id>/remove/", views.queue_remove, name="queue_remove"),
]

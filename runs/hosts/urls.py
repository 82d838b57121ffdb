from django.urls import include, path

from runs.hosts import views

urlpatterns = [
    path("", views.hardware, name="hardware"),
    path("leases/<int:lease_id>/release/", views.release_lease, name="release_lease"),
    path("hosts/<int:host_id>/drain/", views.drain, name="drain_host"),
    path("hosts/<int:host_id>/unsandboxed/", views.unsandboxed, name="host_unsandboxed"),
    path("hosts/<int:host_id>/give-up/", views.give_up_host, name="give_up_host"),
    path("hosts/<int:host_id>/remove/", views.remove_host, name="remove_host"),
    path("queue/", include("runs.scheduling.urls")),
    path("trials/", include("runs.trials.urls")),
    path("profiles/", include("controlplane.hardware.profile_urls")),
]

from django.urls import path

from controlplane.hardware import views

urlpatterns = [
    path("", views.hardware, name="hardware"),
    path("leases/<int:lease_id>/release/", views.release_lease, name="release_lease"),
    path("hosts/<int:host_id>/drain/", views.drain, name="drain_host"),
    path("profiles/new/", views.profile_new, name="profile_new"),
    path("profiles/<int:profile_id>/", views.profile, name="profile"),
    path("profiles/<int:profile_id>/delete/", views.profile_delete, name="profile_delete"),
]

from django.urls import path

from controlplane.catalogue.hardware.profile_pages import profile_views as views

urlpatterns = [
    path("new/", views.profile_new, name="profile_new"),
    path("import/", views.profile_import, name="profile_import"),
    path("<int:profile_id>/", views.profile, name="profile"),
    path("<int:profile_id>/archive/", views.profile_archive, name="profile_archive"),
    path("<int:profile_id>/profile.yaml", views.profile_export, name="profile_export"),
]

from django.urls import path

from controlplane.environments import version_views, views

urlpatterns = [
    path("", views.environments, name="environments"),
    path("new/", views.new, name="environment_new"),
    path("import/", views.import_, name="environment_import"),
    path("part/", views.part, name="environment_part"),
    path("preview/", views.preview, name="environment_preview"),
    path("<int:environment_id>/", views.edit, name="environment"),
    path("<int:environment_id>/versions/", version_views.versions, name="environment_versions"),
    path("<int:environment_id>/v<int:number>/", version_views.version, name="environment_version"),
    path("<int:environment_id>/v<int:number>/yaml/", version_views.export, name="environment_version_export"),
    path("<int:environment_id>/v<int:number>/duplicate/", version_views.duplicate, name="environment_duplicate"),
    path("<int:environment_id>/archive/", version_views.archive, name="environment_archive"),
    path("<int:environment_id>/unarchive/", version_views.unarchive, name="environment_unarchive"),
    path("<int:environment_id>/delete/", version_views.delete, name="environment_delete"),
]

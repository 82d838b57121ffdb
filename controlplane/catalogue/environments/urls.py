from django.urls import path

from controlplane.catalogue.environments import config_yaml, saving, version_views, views
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.versioned.urls import routes

urlpatterns = [
    path("new/", views.new, name="environment_new"),
    path("import/", views.import_, name="environment_import"),
    path("part/", views.part, name="environment_part"),
    path("preview/", views.preview, name="environment_preview"),
    path("<int:environment_id>/", views.edit, name="environment"),
    path("<int:environment_id>/v<int:number>/", version_views.version, name="environment_version"),
    *routes(EnvironmentVersion, differences=version_views.differences, clone=saving.clone, export=config_yaml.export),
]

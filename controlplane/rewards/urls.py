from django.urls import path

from controlplane.rewards import version_views, views

urlpatterns = [
    path("", views.reward_configs, name="reward_configs"),
    path("library/", views.library, name="reward_library"),
    path("balance/", views.balance, name="reward_balance"),
    path("component/", views.component, name="reward_component"),
    path("<int:config_id>/versions/", version_views.versions, name="reward_versions"),
    path("<int:config_id>/v<int:number>/", version_views.version, name="reward_version"),
    path("<int:config_id>/v<int:number>/yaml/", version_views.export, name="reward_version_export"),
    path("<int:config_id>/v<int:number>/duplicate/", version_views.duplicate, name="reward_version_duplicate"),
    path("<int:config_id>/archive/", version_views.archive, name="reward_config_archive"),
    path("<int:config_id>/unarchive/", version_views.unarchive, name="reward_config_unarchive"),
    path("<int:config_id>/delete/", version_views.delete, name="reward_config_delete"),
]

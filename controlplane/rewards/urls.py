from django.urls import path

from controlplane.rewards import code_views, version_views, views, yaml_views
from runs.playground import replay_views
from runs.playground import views as playground_views

urlpatterns = [
    path("", views.reward_configs, name="reward_configs"),
    path("new/", views.new, name="reward_config_new"),
    path("library/", views.library, name="reward_library"),
    path("import/", yaml_views.import_, name="reward_config_import"),
    path("balance/", views.balance, name="reward_balance"),
    path("component/", views.component, name="reward_component"),
    path("sample/", playground_views.sample, name="reward_sample"),
    path("runs/", playground_views.runs, name="reward_runs"),
    path("replay/", replay_views.replay, name="reward_replay"),
    path("try/", playground_views.try_out, name="reward_try"),
    path("code/", code_views.check, name="reward_code_check"),
    path("<int:config_id>/", views.edit, name="reward_config"),
    path("<int:config_id>/versions/", version_views.versions, name="reward_versions"),
    path("<int:config_id>/v<int:number>/", version_views.version, name="reward_version"),
    path("<int:config_id>/v<int:number>/yaml/", yaml_views.export, name="reward_version_export"),
    path("<int:config_id>/v<int:number>/duplicate/", version_views.duplicate, name="reward_version_duplicate"),
    path("<int:config_id>/archive/", version_views.archive, name="reward_config_archive"),
    path("<int:config_id>/unarchive/", version_views.unarchive, name="reward_config_unarchive"),
    path("<int:config_id>/delete/", version_views.delete, name="reward_config_delete"),
]

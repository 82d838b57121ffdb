"""The editor of a reward config, with the playground and the replay beside it."""

from django.urls import path

from runs.playground import code_views, editor_views, replay_views, views

urlpatterns = [
    path("new/", editor_views.new, name="reward_config_new"),
    path("import/", editor_views.import_, name="reward_config_import"),
    path("sample/", views.sample, name="reward_sample"),
    path("runs/", views.runs, name="reward_runs"),
    path("replay/", replay_views.replay, name="reward_replay"),
    path("try/", views.try_out, name="reward_try"),
    path("code/", code_views.check, name="reward_code_check"),
    path("<int:config_id>/", editor_views.edit, name="reward_config"),
]

from django.urls import path

from controlplane.rewards import views

urlpatterns = [
    path("", views.reward_configs, name="reward_configs"),
    path("new/", views.new, name="reward_config_new"),
    path("component/", views.component, name="reward_component"),
    path("sample/", views.sample, name="reward_sample"),
    path("try/", views.try_out, name="reward_try"),
    path("<int:config_id>/", views.edit, name="reward_config"),
    path("<int:config_id>/duplicate/", views.duplicate, name="reward_config_duplicate"),
    path("<int:config_id>/delete/", views.delete, name="reward_config_delete"),
]

from django.urls import path

from controlplane.catalogue.rewards import config_yaml, saving, version_views, views
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.urls import routes

urlpatterns = [
    path("library/", views.library, name="reward_library"),
    path("balance/", views.balance, name="reward_balance"),
    path("component/", views.component, name="reward_component"),
    path("<int:config_id>/v<int:number>/", version_views.version, name="reward_version"),
    *routes(RewardVersion, differences=version_views.differences, clone=saving.clone, export=config_yaml.export),
]

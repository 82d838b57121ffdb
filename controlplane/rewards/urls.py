from django.urls import path

from controlplane.rewards import config_yaml, saving, version_views, views
from controlplane.rewards.differences import differences
from controlplane.rewards.models import RewardVersion
from controlplane.versioned.urls import routes

urlpatterns = [
    path("library/", views.library, name="reward_library"),
    path("balance/", views.balance, name="reward_balance"),
    path("component/", views.component, name="reward_component"),
    path("<int:config_id>/v<int:number>/", version_views.version, name="reward_version"),
    *routes(RewardVersion, differences=differences, clone=saving.clone, export=config_yaml.export),
]

from django.urls import include, path

from controlplane.datasets import urls as datasets
from runs.hosts import tokenizer_views

urlpatterns = [
    path("", include("controlplane.accounts.urls")),
    path("", include("runs.urls")),
    path(f"datasets/{datasets.VERSION}tokenizer/", tokenizer_views.tokenizer, name="dataset_tokenizer"),
    path("datasets/", include("controlplane.datasets.urls")),
    path("rewards/", include("controlplane.rewards.urls")),
    path("api/", include(datasets.api_urlpatterns)),
]

handler400 = "controlplane.http.errors.bad_request"
handler403 = "controlplane.http.errors.forbidden"
handler404 = "controlplane.http.errors.not_found"
handler500 = "controlplane.http.errors.server_error"

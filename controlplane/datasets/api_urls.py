from django.urls import path

from controlplane.datasets import api

urlpatterns = [
    path("hosts/<str:host>/inspections/<int:inspection_id>/tokenizer", api.tokenizer, name="api_tokenizer"),
]

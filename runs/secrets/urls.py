from django.urls import path

from runs.secrets import views

urlpatterns = [
    path("", views.secrets, name="secrets"),
    path("<int:secret_id>/", views.secret, name="secret"),
    path("<int:secret_id>/delete/", views.delete, name="secret_delete"),
]

from django.urls import path

from controlplane.platform.activity import views

urlpatterns = [
    path("", views.events, name="events"),
    path("csv", views.events_csv, name="events_csv"),
]

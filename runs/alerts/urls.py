from django.urls import path

from runs.alerts import views

urlpatterns = [
    path("", views.alerts, name="alerts"),
    path("deliveries/", views.deliveries, name="alert_deliveries"),
    path("deliveries/<int:delivery_id>/again/", views.again, name="alert_again"),
    path("<int:target_id>/", views.target, name="alert_target"),
    path("<int:target_id>/test/", views.test, name="alert_test"),
    path("<int:target_id>/delete/", views.delete, name="alert_delete"),
]

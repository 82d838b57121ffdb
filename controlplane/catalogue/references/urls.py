from django.urls import path

from controlplane.catalogue.references import views

urlpatterns = [
    path("", views.reference_checks, name="reference_checks"),
    path("<int:check_id>/", views.reference_check, name="reference_check"),
    path("<int:check_id>/stop/", views.stop, name="reference_check_stop"),
    path("<int:check_id>/leave-out/", views.leave_out, name="reference_check_leave_out"),
]

from django.urls import path

from controlplane.platform.guide import views

urlpatterns = [
    path("glossary/", views.glossary, name="glossary"),
    path("help/", views.document, name="documents"),
    path("help/tour", views.tour_seen, name="tour_seen"),
    path("help/<slug:document>/", views.document, name="document"),
]

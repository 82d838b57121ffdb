from django.urls import path

from controlplane.catalogue.datasets.corpora import views

VERSION = "<int:corpus_id>/<int:number>/"

urlpatterns = [
    path("", views.corpora, name="corpora"),
    path("new/<int:dataset_id>/<int:number>/", views.new, name="corpus_new"),
    path("text/", views.text, name="corpus_text"),
    path("sample/", views.sample, name="corpus_sample"),
    path(VERSION, views.corpus, name="corpus"),
    path(f"{VERSION}state/", views.state, name="corpus_state"),
    path(f"{VERSION}archive/", views.archive, name="corpus_archive"),
    path(f"{VERSION}unarchive/", views.unarchive, name="corpus_unarchive"),
    path(f"{VERSION}delete/", views.delete, name="corpus_delete"),
]

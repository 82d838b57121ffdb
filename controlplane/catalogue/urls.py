"""Routes of the catalogue: datasets, corpora, reference checks, rewards, environments, profiles, joining."""

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, include, path

from controlplane.catalogue.datasets.corpora import views as corpus_views
from controlplane.catalogue.datasets.pages import (
    adding_views,
    browse_views,
    mapping_views,
    version_views,
)
from controlplane.catalogue.datasets.pages import (
    views as dataset_views,
)
from controlplane.catalogue.environments import (
    config_yaml as environment_yaml,
)
from controlplane.catalogue.environments import (
    saving as environment_saving,
)
from controlplane.catalogue.environments import (
    views as environment_views,
)
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.profile_pages import profile_views
from controlplane.catalogue.joining import views as joining_views
from controlplane.catalogue.references import views as reference_views
from controlplane.catalogue.rewards import config_yaml as reward_yaml
from controlplane.catalogue.rewards import saving as reward_saving
from controlplane.catalogue.rewards import views as reward_views
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import views as item_views
from controlplane.catalogue.versioned.models import Version
from workers.contract.wire.joining import JOIN


def item_routes(
    model: type[Version],
    *,
    page: Callable[..., Any],
    differences: Callable[..., Any],
    clone: Callable[..., Any],
    export: Callable[..., Any],
) -> list[URLPattern]:
    """Return the routes of a kind's list, of an item's versions, and of the actions on an item.

    `page` is the view of a version, `differences` returns the changes between two versions, `clone` creates an item
    from a version for an owner, and `export` returns a version as a document.
    """
    kwargs, item, version = {"model": model}, model.kind.route, model.kind.version_route
    version_path = "<int:item_id>/v<int:number>/"
    return [
        path("", item_views.items, kwargs, name=f"{item}s"),
        path(
            "<int:item_id>/versions/",
            item_views.versions,
            kwargs | {"differences": differences},
            name=f"{version}s",
        ),
        path(version_path, item_views.version, kwargs | {"page": page}, name=version),
        path(f"{version_path}yaml/", item_views.export, kwargs | {"document": export}, name=f"{version}_export"),
        path(f"{version_path}duplicate/", item_views.cloned, kwargs | {"clone": clone}, name=f"{version}_duplicate"),
        path("<int:item_id>/archive/", item_views.archive, kwargs | {"archived": True}, name=f"{item}_archive"),
        path(
            "<int:item_id>/unarchive/",
            item_views.archive,
            kwargs | {"archived": False},
            name=f"{item}_unarchive",
        ),
    ]


VERSION = "<int:dataset_id>/<int:number>/"
CORPUS = "<int:corpus_id>/<int:number>/"

datasets = [
    path("", dataset_views.datasets, name="datasets"),
    path("name/", dataset_views.name, name="dataset_name"),
    path("upload/", adding_views.upload, name="dataset_upload"),
    path("rows/", adding_views.add, {"origin": "rows"}, name="dataset_typed"),
    path("sample.<slug:kind>", adding_views.sample, name="dataset_sample"),
    path("hub/", adding_views.add, {"origin": "hub"}, name="dataset_hub"),
    path("path/", adding_views.add, {"origin": "path"}, name="dataset_path"),
    path("tasks/", adding_views.add, {"origin": "tasks"}, name="dataset_tasks"),
    path("<int:dataset_id>/", dataset_views.dataset, name="dataset"),
    path("<int:dataset_id>/upload/", adding_views.upload, name="dataset_upload_version"),
    path("<int:dataset_id>/rows/", adding_views.add, {"origin": "rows"}, name="dataset_typed_version"),
    path("<int:dataset_id>/hub/", adding_views.add, {"origin": "hub"}, name="dataset_hub_version"),
    path("<int:dataset_id>/path/", adding_views.add, {"origin": "path"}, name="dataset_path_version"),
    path("<int:dataset_id>/tasks/", adding_views.add, {"origin": "tasks"}, name="dataset_tasks_version"),
    path(VERSION, dataset_views.dataset, name="dataset_version"),
    path(f"{VERSION}state/", dataset_views.state, name="dataset_state"),
    path(f"{VERSION}report/", browse_views.report, name="dataset_report"),
    path(f"{VERSION}problems.jsonl", browse_views.problems, name="dataset_problems"),
    path(f"{VERSION}rows/", browse_views.rows, name="dataset_rows"),
    path(f"{VERSION}rows/<int:row>/", browse_views.row, name="dataset_row"),
    path(f"{VERSION}export/", browse_views.export, name="dataset_export"),
    path(f"{VERSION}derive/", browse_views.derive, name="dataset_derive"),
    path(f"{VERSION}example/", mapping_views.example, name="dataset_example"),
    path(f"{VERSION}mapping/", mapping_views.mapping, name="dataset_mapping"),
    path(f"{VERSION}leave-out/", mapping_views.leave_out, name="dataset_leave_out"),
    path(f"{VERSION}again/", mapping_views.map_again, name="dataset_map_again"),
    path(f"{VERSION}cancel/", version_views.cancel, name="dataset_cancel"),
    path(f"{VERSION}try-again/", version_views.try_again, name="dataset_try_again"),
    path(f"{VERSION}archive/", version_views.archive, {"archived": True}, name="dataset_archive"),
    path(f"{VERSION}unarchive/", version_views.archive, {"archived": False}, name="dataset_unarchive"),
    path(f"{VERSION}delete/", version_views.delete_version, name="dataset_version_delete"),
]
corpora = [
    path("", corpus_views.corpora, name="corpora"),
    path("new/<int:dataset_id>/<int:number>/", corpus_views.new, name="corpus_new"),
    path("text/", corpus_views.text, name="corpus_text"),
    path("sample/", corpus_views.sample, name="corpus_sample"),
    path(CORPUS, corpus_views.corpus, name="corpus"),
    path(f"{CORPUS}state/", corpus_views.state, name="corpus_state"),
    path(f"{CORPUS}archive/", corpus_views.archive, {"archived": True}, name="corpus_archive"),
    path(f"{CORPUS}unarchive/", corpus_views.archive, {"archived": False}, name="corpus_unarchive"),
    path(f"{CORPUS}delete/", corpus_views.delete, name="corpus_delete"),
]
references = [
    path("", reference_views.reference_checks, name="reference_checks"),
    path("<int:check_id>/", reference_views.reference_check, name="reference_check"),
    path("<int:check_id>/stop/", reference_views.stop, name="reference_check_stop"),
    path("<int:check_id>/leave-out/", reference_views.leave_out, name="reference_check_leave_out"),
]
rewards = [
    path("library/", reward_views.library, name="reward_library"),
    path("balance/", reward_views.balance, name="reward_balance"),
    path("component/", reward_views.component, name="reward_component"),
    *item_routes(
        RewardVersion,
        page=reward_views.version_page,
        differences=reward_views.differences,
        clone=reward_saving.clone,
        export=reward_yaml.export,
    ),
]
environments = [
    path("new/", environment_views.new, name="environment_new"),
    path("import/", environment_views.import_, name="environment_import"),
    path("part/", environment_views.part, name="environment_part"),
    path("preview/", environment_views.preview, name="environment_preview"),
    path("<int:environment_id>/", environment_views.edit, name="environment"),
    *item_routes(
        EnvironmentVersion,
        page=environment_views.version_page,
        differences=environment_views.differences,
        clone=environment_saving.clone,
        export=environment_yaml.export,
    ),
]
profiles = [
    path("new/", profile_views.profile_new, name="profile_new"),
    path("import/", profile_views.profile_import, name="profile_import"),
    path("<int:profile_id>/", profile_views.profile, name="profile"),
    path("<int:profile_id>/archive/", profile_views.profile_archive, name="profile_archive"),
    path("<int:profile_id>/profile.yaml", profile_views.profile_export, name="profile_export"),
]

urlpatterns = [
    path("datasets/references/", include(references)),
    path("datasets/corpora/", include(corpora)),
    path("datasets/", include(datasets)),
    path("rewards/", include(rewards)),
    path("environments/", include(environments)),
    path("hardware/profiles/", include(profiles)),
    path(JOIN.removeprefix("/"), joining_views.join, name="api_host_join"),
]

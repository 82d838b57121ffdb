"""Pages and actions of the command palette, and who may use them."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.accounts.models import User


@dataclass(frozen=True)
class Place:
    title: str
    route: str = ""
    """Route of its page; empty if the browser handles it."""
    icon: str = "file"
    words: str = ""
    """Synonyms."""
    operators: bool = False
    admins: bool = False
    args: tuple[str, ...] = ()
    part: str = ""
    """An id within the page."""
    query: str = ""
    does: str = ""
    """Action of static/js/palette.js."""

    def open_to(self, user: User) -> bool:
        return (user.may_operate or not self.operators) and (user.may_administer or not self.admins)


PAGES = (
    Place("Runs", "runs", "activity", "list training"),
    Place("Archived runs", "runs", "archive", "archive unarchive", query="archived=only"),
    Place("Compare runs", "compare_runs", "git-compare", "comparison difference"),
    Place("Datasets", "datasets", "database", "data"),
    Place("Rewards", "reward_configs", "scale", "reward configs scoring"),
    Place("Environments", "environments", "wrench", "tools games"),
    Place("Models", "models", "box", "checkpoints adapters lora"),
    Place("Hardware", "hardware", "cpu", "hosts gpus queue profiles machines"),
    Place("Events", "events", "history", "activity audit log who did what"),
    Place("Corpora", "corpora", "database", "documents search"),
    Place("Checks of answers", "reference_checks", "database", "references"),
    Place("Reward library", "reward_library", "scale", "functions"),
    Place("First steps", "start", "circle-play", "recipes start begin example"),
    Place("Settings", "settings", "settings", "preferences"),
    Place("Recently deleted", "deleted", "trash-2", "trash restore undo settings"),
    Place("Health presets", "health_presets", "heart-pulse", "thresholds settings"),
    Place("Users", "users", "users", "people roles accounts limits settings", admins=True),
    Place("Alerts", "alerts", "bell", "notifications slack mail webhook channels settings", admins=True),
    Place("Secrets", "secrets", "lock-keyhole", "keys tokens wandb hub store settings", admins=True),
    Place("API tokens", "api_tokens", "square-terminal", "grpoctl programs settings"),
    Place("Password", "password", "key-round", "account settings"),
    Place("Documentation", "documents", "book-open", "help readme manual"),
    Place("Glossary", "glossary", "book-a", "help words terms"),
)
ACTS = (
    Place("New run", "new_run", "circle-play", "launch train start", operators=True),
    Place("Add a dataset", "dataset_upload", "database", "upload new file import", operators=True),
    Place("New reward config", "reward_config_new", "scale", "add create", operators=True),
    Place("New environment", "environment_new", "wrench", "add create tools", operators=True),
    Place("New hardware profile", "profile_new", "cpu", "add create gpus", operators=True),
    Place("Try hardware profiles", "trial_new", "cpu", "benchmark trial", operators=True),
    Place("Add a host", "add_host", "cpu", "join machine gpu server", operators=True),
    Place("Invite a user", "users", "users", "add create person account", admins=True, part="invite"),
    Place("Add an alert target", "alerts", "bell", "notify slack mail", admins=True),
    Place("Store a secret", "secrets", "lock-keyhole", "add key token", admins=True),
    Place("New API token", "api_tokens", "square-terminal", "make create"),
    Place("Theme: dark", icon="moon", words="colour night", does="theme-dark"),
    Place("Theme: light", icon="sun", words="colour day", does="theme-light"),
    Place("Theme: follow the system", icon="monitor", words="colour auto", does="theme-system"),
    Place("Sign out", icon="log-out", words="log out logout leave", does="sign-out"),
    Place("Keyboard shortcuts", icon="keyboard", words="help keys map", does="shortcuts"),
)

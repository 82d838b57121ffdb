"""Pages and actions in the command palette, and which users see them."""

from dataclasses import dataclass

from controlplane.platform.accounts.models import User


@dataclass(frozen=True)
class PaletteEntry:
    title: str
    route: str = ""
    """Route of the entry's page; empty if the browser handles the entry."""
    icon: str = "file"
    synonyms: str = ""
    operators: bool = False
    admins: bool = False
    part: str = ""
    query: str = ""
    does: str = ""
    """Name of an action in static/js/palette.js."""

    def open_to(self, user: User) -> bool:
        return (user.may_operate or not self.operators) and (user.may_administer or not self.admins)


PAGES = (
    PaletteEntry("Runs", "runs", "activity", "list training"),
    PaletteEntry("Archived runs", "runs", "archive", "archive unarchive", query="archived=only"),
    PaletteEntry("Compare runs", "compare_runs", "git-compare", "comparison difference"),
    PaletteEntry("Datasets", "datasets", "database", "data"),
    PaletteEntry("Rewards", "reward_configs", "scale", "reward configs scoring"),
    PaletteEntry("Environments", "environments", "wrench", "tools games"),
    PaletteEntry("Models", "models", "box", "checkpoints adapters lora"),
    PaletteEntry("Hardware", "hardware", "cpu", "hosts gpus queue profiles machines"),
    PaletteEntry("Events", "events", "history", "activity audit log who did what"),
    PaletteEntry("Corpora", "corpora", "database", "documents search"),
    PaletteEntry("Checks of answers", "reference_checks", "database", "references"),
    PaletteEntry("Reward library", "reward_library", "scale", "functions"),
    PaletteEntry("First steps", "start", "circle-play", "recipes start begin example"),
    PaletteEntry("Settings", "settings", "settings", "preferences"),
    PaletteEntry("Recently deleted", "deleted", "trash-2", "trash restore undo settings"),
    PaletteEntry("Health presets", "health_presets", "heart-pulse", "thresholds settings"),
    PaletteEntry("Users", "users", "users", "people roles accounts limits settings", admins=True),
    PaletteEntry("Alerts", "alerts", "bell", "notifications slack mail webhook channels settings", admins=True),
    PaletteEntry("Secrets", "secrets", "lock-keyhole", "keys tokens wandb hub store settings", admins=True),
    PaletteEntry("API tokens", "api_tokens", "square-terminal", "grpoctl programs settings"),
    PaletteEntry("Password", "password", "key-round", "account settings"),
    PaletteEntry("Documentation", "documents", "book-open", "help readme manual"),
    PaletteEntry("Glossary", "glossary", "book-a", "help words terms"),
)
ACTIONS = (
    PaletteEntry("New run", "new_run", "circle-play", "launch train start", operators=True),
    PaletteEntry("Add a dataset", "dataset_upload", "database", "upload new file import", operators=True),
    PaletteEntry("New reward config", "reward_config_new", "scale", "add create", operators=True),
    PaletteEntry("New environment", "environment_new", "wrench", "add create tools", operators=True),
    PaletteEntry("New hardware profile", "profile_new", "cpu", "add create gpus", operators=True),
    PaletteEntry("Try hardware profiles", "trial_new", "cpu", "benchmark trial", operators=True),
    PaletteEntry("Add a host", "add_host", "cpu", "join machine gpu server", operators=True),
    PaletteEntry("Invite a user", "users", "users", "add create person account", admins=True, part="invite"),
    PaletteEntry("Add an alert target", "alerts", "bell", "notify slack mail", admins=True),
    PaletteEntry("Store a secret", "secrets", "lock-keyhole", "add key token", admins=True),
    PaletteEntry("New API token", "api_tokens", "square-terminal", "make create"),
    PaletteEntry("Theme: dark", icon="moon", synonyms="colour night", does="theme-dark"),
    PaletteEntry("Theme: light", icon="sun", synonyms="colour day", does="theme-light"),
    PaletteEntry("Theme: follow the system", icon="monitor", synonyms="colour auto", does="theme-system"),
    PaletteEntry("Sign out", icon="log-out", synonyms="log out logout leave", does="sign-out"),
    PaletteEntry("Keyboard shortcuts", icon="keyboard", synonyms="help keys map", does="shortcuts"),
)

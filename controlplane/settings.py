"""Django settings. Everything that an installation can choose comes from the environment. The data folder
(CONTROLPLANE_DATA, default .data beside manage.py) has the secret key, the database and the uploads."""

import hashlib
import os
from pathlib import Path
from typing import Any

from controlplane.platform import oidc
from controlplane.platform.database import databases
from controlplane.platform.datafolder import data_folder, incoming, secret_key
from controlplane.platform.environment import one_of, password_of, token_of, whole
from controlplane.platform.plaintext import encrypted_redis

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = data_folder(BASE_DIR)
SECRET_KEY = secret_key(DATA_DIR)
DEBUG = False

PUBLIC_HOSTS = [h for h in os.environ.get("CONTROLPLANE_HOSTS", "").split(",") if h]
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", *PUBLIC_HOSTS]
PUBLIC_URL = os.environ.get("CONTROLPLANE_URL", "").rstrip("/")
"""The address that people use if the web runs alone behind a proxy, for links of `manage.py link`, W&B and MLflow."""

INSTALLED_APPS = [
    "servestatic",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "django_htmx",
    "controlplane.platform",
    "controlplane.setup",
    "controlplane.platform.accounts",
    "controlplane.platform.activity",
    "controlplane.catalogue.datasets",
    "controlplane.catalogue.rewards",
    "controlplane.catalogue.environments",
    "controlplane.catalogue.references",
    "controlplane.catalogue.hardware",
    "controlplane.catalogue.joining",
    "runs.engine.alerts",
    "runs.engine.artifacts",
    "runs.engine.machines",
    "runs.engine.served",
    "runs.engine.sharing",
    "runs.engine.warm",
    "runs.engine",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "controlplane.platform.staticfiles.static_files",
    "controlplane.platform.http.middleware.ProtectiveHeaders",
    "controlplane.platform.logs.RunsInLogs",
    "controlplane.platform.http.middleware.NoNul",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "controlplane.platform.activity.recording.RemembersRequest",
    "allauth.account.middleware.AccountMiddleware",
    "controlplane.platform.http.middleware.SignInRequired",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.platform.http.middleware.RefusedMethodsInWords",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "sign_in"
LOGIN_REDIRECT_URL = "home"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "frontend" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["controlplane.platform.templatetags.optional"],
        },
    }
]
FORM_RENDERER = "controlplane.platform.http.form_renderer.Renderer"

DATABASES = databases(DATA_DIR)

REDIS_URL = encrypted_redis("REDIS_URL")
"""`up` and `demo` set it for their children if they run the embedded Valkey."""
HOST_REDIS_URL = encrypted_redis("CONTROLPLANE_HOST_REDIS_URL", with_password=False)
"""The address of the same Redis for hosts on other machines, each of which gets its own user. "": REDIS_URL."""

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]

OIDC = oidc.from_environment()
"""Sign-in at an OpenID provider beside local accounts. None: only local accounts."""
SOCIALACCOUNT_PROVIDERS = OIDC.for_allauth() if OIDC else {}
SOCIALACCOUNT_ADAPTER = "controlplane.platform.accounts.oidc.OidcSignIn"
ACCOUNT_EMAIL_VERIFICATION = "none"

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Cookies ignore ports: with the same name, two installations on one machine would sign each other's users out. The key
# is unique per installation; the data folder's path is not, in containers.
_MARK = hashlib.sha256(f"cookies of {SECRET_KEY}".encode()).hexdigest()[:8]
SESSION_COOKIE_NAME = f"controlplane_session_{_MARK}"
CSRF_COOKIE_NAME = f"controlplane_csrf_{_MARK}"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "controlplane.platform.http.errors.csrf_failed"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

LANGUAGE_CODE = "en-us"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_ROOT = DATA_DIR / "static"
STATIC_STAMP = ".collected"
"""A file in STATIC_ROOT with the fingerprint of the collected files (controlplane.platform.staticfiles)."""
_STAMP = STATIC_ROOT / STATIC_STAMP
STATIC_VERSION = _STAMP.read_text()[:12] if _STAMP.exists() else ""
STATIC_URL = f"/static/{STATIC_VERSION}/" if STATIC_VERSION else "/static/"
STATICFILES_DIRS = [BASE_DIR / "frontend" / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "controlplane.platform.packagefinder.PlotlyFinder",
    "controlplane.platform.packagefinder.AceFinder",
    "controlplane.platform.packagefinder.FontFinder",
    "controlplane.platform.packagefinder.MonoFontFinder",
]

# Every start collects the static files into the data folder, so editing or upgrading the checkout can't change a file
# under a running web. The version is in the path, not in the names: our ES modules import each other by relative names.
STATIC_ROOT.mkdir(exist_ok=True)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "controlplane.platform.staticfiles.StaticStorage"},
}
SERVESTATIC_USE_FINDERS = False
SERVESTATIC_AUTOREFRESH = False
SERVESTATIC_MAX_AGE = 0
SERVESTATIC_MIMETYPES = {".ttf": "font/ttf"}
SERVESTATIC_ALLOW_ALL_ORIGINS = False

LOG_AS = one_of("CONTROLPLANE_LOG", ("text", "json"))
LOGGING: dict[str, Any] = {
    # Errors of requests go to standard error with their traceback: `up` keeps it in web.log. No level here: the workers
    # report readiness at INFO.
    "version": 1,
    "disable_existing_loggers": False,
    # Filters of the handler see all records of our loggers and Django's; other loggers have their own handlers.
    "filters": {
        "refusals": {"()": "controlplane.platform.logs.NoTracebackOfRefusals"},
        "link_tokens": {"()": "controlplane.platform.logs.MaskLinkTokens"},
        "outage": {"()": "controlplane.platform.http.outage.OncePerOutage"},
    },
    "formatters": {"text": {}, "json": {"()": "controlplane.platform.logs.JsonLines"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "filters": ["refusals", "link_tokens", "outage"],
            "formatter": LOG_AS,
        }
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "propagate": False},
        "uvicorn.error": {"filters": ["link_tokens", "outage"]},
        "uvicorn.asgi": {"filters": ["link_tokens"]},
    },
}
if LOG_AS == "json":
    # Not "uvicorn": that would override the setting of the access log.
    LOGGING["loggers"]["uvicorn.error"] |= {"handlers": ["stderr"], "propagate": False}

METRICS_TOKEN = token_of("CONTROLPLANE_METRICS_TOKEN_FILE")
"""A token that Prometheus can send in place of a person's API token, which expires."""

EMAIL_HOST = os.environ.get("CONTROLPLANE_SMTP_HOST", "")
EMAIL_PORT = whole("CONTROLPLANE_SMTP_PORT", 587)
EMAIL_HOST_USER = os.environ.get("CONTROLPLANE_SMTP_USER", "")
EMAIL_HOST_PASSWORD = password_of("CONTROLPLANE_SMTP_PASSWORD_FILE")
_SMTP_SECURITY = one_of("CONTROLPLANE_SMTP_SECURITY", ("starttls", "tls", "none"))
EMAIL_USE_TLS, EMAIL_USE_SSL = _SMTP_SECURITY == "starttls", _SMTP_SECURITY == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("CONTROLPLANE_MAIL_FROM", "") or EMAIL_HOST_USER or "grpo@localhost"
"""The sender of alerts by mail. The password is in a file, so that no process list or child's environment has it."""

DATASET_MAX_BYTES = whole("CONTROLPLANE_DATASET_MAX_MB", 4096) * 2**20
ARCHIVES_MAX_BYTES = whole("CONTROLPLANE_ARCHIVES_MAX_GB", 200) * 10**9
"""Total size of the archives of models, which are kept in the data folder for a day."""
DELETED_KEPT_DAYS = whole("CONTROLPLANE_DELETED_KEPT_DAYS", 14)
"""How long deleted objects can be restored."""
DATASET_HUB_SILENCE_S = whole("CONTROLPLANE_DATASET_HUB_SILENCE_S", 10)
"""Read time-out of a try in seconds. Failed requests are retried a few times."""
DATASET_ROOTS = tuple(folder for folder in os.environ.get("CONTROLPLANE_DATASET_ROOTS", "").split(":") if folder)
"""Folders of this machine from which operators may import datasets."""
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 2**20
DATA_UPLOAD_MAX_NUMBER_FILES = 4
FILE_UPLOAD_HANDLERS = ["controlplane.platform.http.upload.LimitedUpload"]
FILE_UPLOAD_TEMP_DIR = incoming(DATA_DIR)
FILE_UPLOAD_TEMP_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
"""On the data folder's disk, because /tmp may be memory or another disk."""


def _seconds(name: str, default: float) -> float:
    """Return a deadline in seconds. Tests shorten it, and slow networks may need a longer one."""
    return float(os.environ.get(f"CONTROLPLANE_{name}", default))


TICK_S = _seconds("TICK_S", 5)
HOST_STALE_AFTER_S = _seconds("HOST_STALE_AFTER_S", 30)
"""Hosts announce themselves every 10 s. A host without an announcement for this long gets no launches."""
SILENT_AFTER_S = _seconds("SILENT_AFTER_S", 30)
"""When a supervisor counts as silent; its heartbeat comes every 2 s."""
UNWATCHED_S = _seconds("UNWATCHED_S", 2)
"""The interval at which the supervisor of an unwatched run sends its lines: storing many lines at once costs little
more than one. A stop whose message is lost is delayed by as much."""
REAP_EVERY_S = _seconds("REAP_EVERY_S", 60)
"""The interval of requests to a host about a silent attempt. It is longer than a reap, so that they don't pile up and
delay launches."""
LAUNCH_AGAIN_S = _seconds("LAUNCH_AGAIN_S", 30)
"""When an unclaimed launch is sent again."""
MAX_RUNNING = whole("CONTROLPLANE_MAX_RUNNING", 0, minimum=0)
MAX_QUEUED = whole("CONTROLPLANE_MAX_QUEUED", 0, minimum=0)
"""A user's limits of active and queued runs, unless the Users page sets others. 0: no limit."""
API_PER_SECOND = whole("CONTROLPLANE_API_PER_SECOND", 20)
"""Requests to /api/v1/ that a token, or an address without one, may send to each web process per second; five times as
many at once. Requests for shared runs are limited in the same way by address."""
SHARE_MAX_DAYS = whole("CONTROLPLANE_SHARE_MAX_DAYS", 90, minimum=0)
"""How long a link to a run may be valid. 0: no run can be shared."""
SOCKET_RECHECK_S = _seconds("SOCKET_RECHECK_S", 60)
"""How often an open websocket checks that its user is still signed in."""

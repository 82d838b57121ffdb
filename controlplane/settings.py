"""Django settings. Everything that an installation can configure comes from environment variables. The data folder
(CONTROLPLANE_DATA, by default .data next to manage.py) contains the secret key, the database and the uploads."""

import hashlib
import os
from pathlib import Path
from typing import Any

from controlplane.platform import oidc
from controlplane.platform.database import databases
from controlplane.platform.datafolder import data_folder, incoming, secret_key
from controlplane.platform.environment import one_of, password_of, token_of, whole_number
from controlplane.platform.plaintext import encrypted_redis

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = data_folder(BASE_DIR)
SECRET_KEY = secret_key(DATA_DIR)
DEBUG = False

PUBLIC_HOSTS = [h for h in os.environ.get("CONTROLPLANE_HOSTS", "").split(",") if h]
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", *PUBLIC_HOSTS]
PUBLIC_URL = os.environ.get("CONTROLPLANE_URL", "").rstrip("/")
"""Address that people use if the web runs alone behind a proxy; `manage.py link`, W&B and MLflow link to it."""

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
    "controlplane.platform.activity.recording.ActsAttribution",
    "allauth.account.middleware.AccountMiddleware",
    "controlplane.platform.http.middleware.SignInRequired",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.platform.http.middleware.RefusedMethodPages",
    "controlplane.platform.http.middleware.UnfinishedWork",
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
"""Address of Redis. `up` and `demo` set it for their children if they run the embedded Valkey."""
HOST_REDIS_URL = encrypted_redis("CONTROLPLANE_HOST_REDIS_URL", with_password=False)
"""Address of the same Redis for hosts on other machines, each with its own user; "" to use REDIS_URL."""

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]

OIDC = oidc.from_environment()
"""Settings for sign-in at an OpenID provider, in addition to local accounts; None if there are only local accounts."""
SOCIALACCOUNT_PROVIDERS = OIDC.for_allauth() if OIDC else {}
SOCIALACCOUNT_ADAPTER = "controlplane.platform.accounts.oidc.OidcSignIn"
ACCOUNT_EMAIL_VERIFICATION = "none"

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Cookies ignore ports: with the same names, two installations on one machine would sign out each other's users. The
# secret key is unique per installation; in containers, the data folder's path isn't.
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
"""Name of the file in STATIC_ROOT with the fingerprint of the collected files (controlplane.platform.staticfiles)."""
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
"""Token that Prometheus can send instead of a person's API token, which would expire."""

EMAIL_HOST = os.environ.get("CONTROLPLANE_SMTP_HOST", "")
EMAIL_PORT = whole_number("CONTROLPLANE_SMTP_PORT", 587)
EMAIL_HOST_USER = os.environ.get("CONTROLPLANE_SMTP_USER", "")
EMAIL_HOST_PASSWORD = password_of("CONTROLPLANE_SMTP_PASSWORD_FILE")
_SMTP_SECURITY = one_of("CONTROLPLANE_SMTP_SECURITY", ("starttls", "tls", "none"))
EMAIL_USE_TLS, EMAIL_USE_SSL = _SMTP_SECURITY == "starttls", _SMTP_SECURITY == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("CONTROLPLANE_MAIL_FROM", "") or EMAIL_HOST_USER or "grpo@localhost"
"""Sender of alert mails. The server's password is in a file, so that no process list or environment shows it."""

DATASET_MAX_BYTES = whole_number("CONTROLPLANE_DATASET_MAX_MB", 4096) * 2**20
ARCHIVES_MAX_BYTES = whole_number("CONTROLPLANE_ARCHIVES_MAX_GB", 200) * 10**9
"""Limit on the total size of the models' archives, which are kept in the data folder for a day."""
DELETED_KEPT_DAYS = whole_number("CONTROLPLANE_DELETED_KEPT_DAYS", 14)
DATASET_HUB_SILENCE_S = whole_number("CONTROLPLANE_DATASET_HUB_SILENCE_S", 10)
"""Read timeout of a single attempt, in seconds. Failed requests are retried a few times."""
DATASET_ROOTS = tuple(folder for folder in os.environ.get("CONTROLPLANE_DATASET_ROOTS", "").split(":") if folder)
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 2**20
DATA_UPLOAD_MAX_NUMBER_FILES = 4
FILE_UPLOAD_HANDLERS = ["controlplane.platform.http.upload.LimitedUpload"]
FILE_UPLOAD_TEMP_DIR = incoming(DATA_DIR)
FILE_UPLOAD_TEMP_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
"""Folder of unfinished uploads, on the data folder's disk, because /tmp may be in memory or on another disk."""


def _seconds(name: str, default: float) -> float:
    return float(os.environ.get(f"CONTROLPLANE_{name}", default))


TICK_S = _seconds("TICK_S", 5)
HOST_STALE_AFTER_S = _seconds("HOST_STALE_AFTER_S", 30)
"""Seconds after which a host that hasn't announced itself gets no launches. Hosts announce themselves every 10 s."""
SILENT_AFTER_S = _seconds("SILENT_AFTER_S", 30)
"""Seconds without a heartbeat after which a supervisor is considered silent. Heartbeats come every 2 s."""
UNWATCHED_S = _seconds("UNWATCHED_S", 2)
"""Seconds between two deliveries of lines by the supervisor of an unwatched run, because storing many lines at once
costs little more than storing one. A stop whose message is lost is delayed as long."""
REAP_EVERY_S = _seconds("REAP_EVERY_S", 60)
"""Seconds between two requests to a host to reap a silent attempt: longer than a reap takes, so that requests don't
pile up and delay launches."""
LAUNCH_AGAIN_S = _seconds("LAUNCH_AGAIN_S", 30)
MAX_RUNNING = whole_number("CONTROLPLANE_MAX_RUNNING", 0, minimum=0)
MAX_QUEUED = whole_number("CONTROLPLANE_MAX_QUEUED", 0, minimum=0)
"""Default limits on a user's active and queued runs, which the Users page can override; 0 for no limit."""
API_PER_SECOND = whole_number("CONTROLPLANE_API_PER_SECOND", 20)
"""Requests per second to /api/v1/ that a token, or an address without one, may send to each web process; bursts may be
five times as large. Requests for shared runs are limited in the same way, by address."""
SHARE_MAX_DAYS = whole_number("CONTROLPLANE_SHARE_MAX_DAYS", 90, minimum=0)
"""Maximum number of days for which a link to a run may be valid; 0 if runs can't be shared."""
SOCKET_RECHECK_S = _seconds("SOCKET_RECHECK_S", 60)
"""Seconds between two checks that the user of an open websocket is still signed in."""

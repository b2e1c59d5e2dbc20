"""An OpenID provider: Django with django-oauth-toolkit, as a process of its own. `python -m tests.server.provider_site CONFIG.json`.

CONFIG: {port, folder, key (PEM), redirects, life (seconds of an ID token), groups: {person: [group, …]}}. Everybody's password is "open".
"""

from __future__ import annotations

import json
import sys
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

CONFIG: dict[str, Any] = {}
LOGIN = '<form method="post">{% csrf_token %}{{ form.as_p }}<input type="hidden" name="next" value="{{ next }}"><button>Go</button></form>'


def configure() -> None:
    from django.conf import settings

    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        SESSION_COOKIE_NAME="provider-session",
        CSRF_COOKIE_NAME="provider-csrf",
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            "django.contrib.messages",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "context_processors": ["django.template.context_processors.request"],
                    "loaders": [
                        ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN}),
                        "django.template.loaders.app_directories.Loader",
                    ],
                },
            }
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{CONFIG['folder']}/provider.db"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        LOGIN_URL="/accounts/login/",
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": CONFIG["key"],
            "OIDC_ISS_ENDPOINT": f"http://127.0.0.1:{CONFIG['port']}/o",
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
            "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.validator",
            "ALLOWED_REDIRECT_URI_SCHEMES": ["http"],
            "PKCE_REQUIRED": True,
            "ID_TOKEN_EXPIRE_SECONDS": CONFIG.get("life", 36000),
            "SCOPES": {"openid": "who one is", "profile": "name", "email": "address"},
        },
    )


def fill() -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    for person in CONFIG["groups"]:
        if not User.objects.filter(username=person).exists():
            User.objects.create_user(person, f"{person}@example.org", "open")
    Application.objects.update_or_create(
        client_id="penstock",
        defaults={
            "client_secret": "of the client",
            "client_type": "confidential",
            "authorization_grant_type": "authorization-code",
            "redirect_uris": " ".join(CONFIG["redirects"]),
            "post_logout_redirect_uris": " ".join(CONFIG["parting"]),
            "skip_authorization": True,
            "algorithm": "RS256",
        },
    )


class Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(path: str) -> None:
    with open(path) as file:
        CONFIG.update(json.load(file))
    sys.modules["tests.server.provider_site"] = sys.modules[__name__]
    configure()
    import django

    django.setup()
    globals().update(_urls())
    fill()
    from django.core.wsgi import get_wsgi_application

    with make_server("127.0.0.1", CONFIG["port"], get_wsgi_application(), Threads, Quiet) as server:
        print("ready", flush=True)
        server.serve_forever()


def _urls() -> dict[str, Any]:
    from django.contrib.auth.views import LoginView
    from django.urls import include, path
    from oauth2_provider.oauth2_validators import OAuth2Validator

    class Validator(OAuth2Validator):  # type: ignore[misc]
        oidc_claim_scope = None

        def get_additional_claims(self, request: Any) -> dict[str, Any]:
            name = request.user.username
            return {
                "preferred_username": name,
                "email": request.user.email,
                "email_verified": name != "dan",
                "groups": CONFIG["groups"][name],
            }

    patterns = [path("o/", include("oauth2_provider.urls")), path("accounts/login/", LoginView.as_view())]
    return {"urlpatterns": patterns, "validator": Validator}


if __name__ == "__main__":
    main(sys.argv[1])

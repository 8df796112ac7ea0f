"""Settings, and docs/operations.md: it names those that exist, with their defaults, and no others."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import EmbeddedSettings, Settings, find_unknown_variables, secret_settings


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DATALENS_{name.upper()}", raising=False)
        monkeypatch.delenv(f"DATALENS_{name.upper()}_FILE", raising=False)


SECRETS = {
    "database_url": "postgresql://u:canary@localhost/x",
    "broker_url": "redis://:canary@localhost:6379/0",
    "oidc_client_secret": "canary with a space",
    "smtp_url": "smtps://u:canary@mail.example.org",
    "timestamp_url": "https://u:canary@stamps.example.org",
}
SENDER = {"public_url": "https://example.org", "mail_sender": "a@example.org", "mail_domains": "example.org"}
WITHOUT_PASSWORD = {"artifact_url", "records_url", "records_key_file", "public_url", "oidc_issuer"} | {
    "content_credentials_certificate_file",
    "content_credentials_key_file",
}
"""Settings that sound like secrets: URLs that may not hold a password, and paths of keys."""


def test_the_defaults_need_no_other_service(tmp_path: Path) -> None:
    settings = Settings()
    assert settings.executor == "local"
    assert settings.url == f"sqlite:///{tmp_path}/datalens-data/datalens.db"
    assert settings.ledger_log_path == tmp_path / "datalens-data" / "ledger.log"


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_DATABASE_URL", "postgresql://db/ledger?sslmode=disable")
    monkeypatch.setenv("DATALENS_LEASE_SECONDS", "90")
    monkeypatch.setenv("DATALENS_LEDGER_LOG", "/elsewhere/ledger.log")
    settings = Settings()
    assert settings.url == "postgresql://db/ledger?sslmode=disable"
    assert settings.lease_seconds == 90
    assert settings.ledger_log_path == Path("/elsewhere/ledger.log")


@pytest.mark.parametrize(
    ("url", "is_verified"),
    [
        ("postgresql://u:p@db.example.org/x", True),
        ("postgresql+psycopg://u:p@10.0.0.7:5432/x", True),
        ("postgres://u@/x?host=127.0.0.1&host=db.example.org", True),
        ("postgresql://u@/x?host=localhost:5432,db.example.org:5432", True),
        ("postgresql://u@localhost/x?hostaddr=10.0.0.7", True),
        ("postgresql://u@localhost.example.org/x", True),
        ("postgresql:///x", True),
        ("postgresql://u@db.example.org/x?connect_timeout=9", True),
        ("postgresql://u@db.example.org/x?sslmode=verify-full", True),
        ("postgresql://u@db.example.org/x?sslmode=disable", False),
        ("postgresql://u@db.example.org/x?sslmode=require", False),
        ("postgresql://u@localhost/x", False),
        ("postgresql://u@127.0.0.2:6432/x", False),
        ("postgresql://u@[::1]:6432/x", False),
        ("postgresql://u@/x?host=[::1]:6432&host=/run/postgresql", False),
        ("sqlite:////srv/datalens.db", False),
    ],
)
def test_the_certificate_of_another_machine_is_verified(url: str, is_verified: bool) -> None:
    found = Settings(database_url=url).url
    assert ("sslmode=verify-full" in found, "sslrootcert=" in found) == (is_verified, is_verified)
    assert found.startswith(url)
    assert make_url(found)


def test_an_authority_of_ones_own_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = "postgresql://u@db.example.org/x?sslrootcert=/etc/ca.pem"
    assert Settings(database_url=named).url == f"{named}&sslmode=verify-full"
    tunnel = "postgresql://u@127.0.0.1:5433/x?sslrootcert=/etc/ca.pem"
    assert Settings(database_url=tunnel).url == f"{tunnel}&sslmode=verify-full"
    monkeypatch.setenv("PGSSLROOTCERT", __file__)
    assert make_url(Settings(database_url="postgresql://u@db.example.org/x").url).query["sslrootcert"] == __file__


@pytest.mark.parametrize("name", ["database_url", "broker_url"])
@pytest.mark.parametrize(
    "url",
    ["postgresql://u:canary/secret@h/x", "rediss://u:7/canary#[@h", "redis://u:canary?secret@h/0", "canary://h:p"],
)
def test_no_error_shows_a_value_that_may_hold_a_password(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    monkeypatch.setenv(f"DATALENS_{name.upper()}", url)
    monkeypatch.setenv("DATALENS_PORT", "canary")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "canary" not in str(refused.value)
    assert "port" in str(refused.value)


def test_celery_without_a_broker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_EXECUTOR", "celery")
    with pytest.raises(ValidationError, match="DATALENS_BROKER_URL"):
        Settings()
    monkeypatch.setenv("DATALENS_BROKER_URL", "redis://localhost:6379/0")
    assert Settings().executor == "celery"


def test_a_broker_alone_does_not_choose_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_BROKER_URL", "redis://localhost:6379/0")
    assert Settings().executor == "local"


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("DATALENS_LEASE_SECOND", "DATALENS_LEASE_SECONDS"),
        ("DATALENS_DATABASE", "DATALENS_DATABASE_URL"),
        ("DATALENS_MAX_RUNING_JOBS", "DATALENS_MAX_RUNNING_JOBS"),
        ("DATALENS_LEDGERLOG", "DATALENS_LEDGER_LOG"),
        ("datalens_brokerurl", "DATALENS_BROKER_URL"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    monkeypatch.setenv(written, "value-of-it")
    with pytest.raises(ValidationError, match=f"{written} is no setting; the nearest is {meant}") as refused:
        Settings()
    assert "value-of-it" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        # Kubernetes makes these beside a Service `datalens-api`.
        "DATALENS_API_SERVICE_HOST",
        "DATALENS_API_PORT_8000_TCP_ADDR",
        # Of the tests and benchmarks.
        "DATALENS_TEST_DATA",
        "DATALENS_REQUIRE_SERVICES",
        "DATALENS_BENCHMARK_COMMIT",
        "DATALENS_STATE_MACHINE_HISTORIES",
    ],
)
def test_a_variable_of_something_else_is_only_warned_of(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert Settings().executor == "local"
    assert find_unknown_variables([name, "DATALENS_URL", "DATALENS_API_KEY", "DATALENS_QUEUE", "PATH"]) == {name: None}


PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text()
FIELDS = Settings.model_fields


def table() -> str:
    return PAGE[PAGE.index("| variable |") : PAGE.index("API and workers need")]


def test_every_setting_is_in_the_table_and_every_variable_is_a_setting() -> None:
    listed = set(re.findall(r"DATALENS_([A-Z_]+)", table()))
    assert listed == {name.upper() for name in FIELDS}, "give each setting a row of the table in docs/operations.md"
    files = {f"{name.upper()}_FILE" for name in secret_settings()}
    named = set(re.findall(r"DATALENS_([A-Z_]+)", PAGE))
    assert files <= named <= files | {name.upper() for name in FIELDS}


def test_numbers_in_the_table_are_the_defaults() -> None:
    for name in ("max_running_jobs", "lease_seconds", "max_attempts"):
        assert f"| `DATALENS_{name.upper()}` | {FIELDS[name].default} |" in table()


MAIL = {"smtp_url": "smtp://m", "public_url": "https://d.example", "mail_sender": "d@d", "mail_domains": "d"}
SIGN_ON = {
    "oidc_issuer": "https://login.example.org", "public_url": "https://d.example", "oidc_client_id": "d",
    "oidc_scopes": {"lab": "owner"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("whole", "missing"), [(whole, name) for whole in (MAIL, SIGN_ON) for name in list(whole)[1:]], ids=str
)
def test_half_a_configuration_is_refused(whole: dict[str, Any], missing: str) -> None:
    assert Settings(**whole).public_url == whole["public_url"]
    with pytest.raises(ValueError, match=f"also needs DATALENS_{missing.upper()}"):
        Settings(**{name: value for name, value in whole.items() if name != missing})


def test_mail_goes_to_a_mail_server() -> None:
    with pytest.raises(ValueError, match="smtp:// or smtps://"):
        Settings(**{**MAIL, "smtp_url": "http://m"})


def test_every_setting_that_may_hold_a_secret_is_marked_as_one() -> None:
    alike = {name for name in Settings.model_fields if re.search("url|secret|password|key|token|credential", name)}
    typed = {name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)}
    public = WITHOUT_PASSWORD | {"wrong_keys_per_minute"}
    assert set(secret_settings()) == set(SECRETS) == (alike | typed) - public


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_every_secret_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, end: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(f"{SECRETS[name]}{end}".encode())
    monkeypatch.setenv(f"DATALENS_{name.upper()}_FILE", str(secret))
    settings = Settings(**SENDER)
    value = getattr(settings, name)
    assert (value if isinstance(value, str) else value.get_secret_value()) == SECRETS[name]
    assert "canary" not in repr(settings)
    assert find_unknown_variables([f"DATALENS_{name.upper()}_FILE"]) == {}


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", ["canary", ""])
def test_a_secret_that_is_set_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    variable, secret = f"DATALENS_{name.upper()}", tmp_path / "secret"
    secret.write_text(SECRETS[name])
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv(f"{variable}_FILE", str(secret))
    with pytest.raises(ValidationError, match=f"{variable} and {variable}_FILE are both set") as refused:
        Settings(**SENDER)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "names no file"),
        (b"", "the value alone, on one line"),
        (b"\n", "the value alone, on one line"),
        (b"canary\ncanary\n", "the value alone, on one line"),
        (b"canary\0", "the value alone, on one line"),
        (b"canary" * 20_000, "the value alone, on one line"),
        (b"canary\xff", "no text in UTF-8"),
    ],
)
def test_a_file_without_a_secret_is_refused_and_nothing_of_it_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    # Somebody may have written the secret in place of the path.
    secret = tmp_path / "canary"
    if content is not None:
        secret.write_bytes(content)
    variable = f"DATALENS_{name.upper()}_FILE"
    monkeypatch.setenv(variable, str(secret))
    with pytest.raises(ValidationError, match=f"{variable}.*{said}") as refused:
        Settings(**SENDER)
    assert "canary" not in str(refused.value)


def test_a_file_that_may_not_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "canary"
    secret.touch()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(secret))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setenv("DATALENS_SMTP_URL_FILE", str(secret))
    with pytest.raises(ValidationError, match="DATALENS_SMTP_URL_FILE names cannot be read: Permission den") as refused:
        Settings()
    assert "canary" not in str(refused.value)


def test_a_run_without_a_service_does_not_read_what_it_does_not_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DATABASE_URL", "BROKER_URL"):
        monkeypatch.setenv(f"DATALENS_{name}_FILE", "/nowhere")
    assert EmbeddedSettings.from_folder(tmp_path).database_url == ""
    monkeypatch.setenv("DATALENS_SMTP_URL_FILE", "/nowhere")
    with pytest.raises(InvalidInput, match=r"^DATALENS_SMTP_URL_FILE names no file"):
        EmbeddedSettings.from_folder(tmp_path)

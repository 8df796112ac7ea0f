"""Settings of a deployment: environment variables with the prefix `DATALENS_`, all optional.

Nothing is probed for: executor and database are those that are set here. A variable
that is nearly the name of a setting is refused: the setting that was meant would silently keep its default.
"""

import difflib
import ipaddress
import os
import re
import ssl
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from datalens_service.base.errors import InvalidInput
from datalens_service.base.secret_files import SUFFIX, Secret, read_secrets
from datalens_service.base.wording import speak

GIBIBYTE = 2**30
PREFIX = "DATALENS_"

ROOT_PATH = r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*"
"""Pattern of a path prefix: parts that browsers leave as they are, and no slash at the end."""

VERIFIES = "ssl_cert_reqs="
"""Parameter of the URL of a Redis with TLS: `required` verifies its certificate, `none` takes any."""

_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Files in which systems keep the certificates of public authorities."""

_OTHER_VARIABLES = frozenset({"DATALENS_URL", "DATALENS_API_KEY", "DATALENS_VERSION"})
"""Variables of the command line as a client, and of docker-compose.yml."""

_ALIKE = 0.8
"""Share of letters in common above which a name is taken for a misspelt one."""


class Settings(BaseSettings):
    """The operator's settings; the defaults run everything on one machine without a further service."""

    # A value that cannot be used may hold a password, so no error shows it.
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)
    served: ClassVar[bool] = True
    """True if a service shows what it stores to the owner of the data."""

    data_dir: Path = Field(
        default=Path("datalens-data"), description="Folder of private records, artifacts, log and default database."
    )
    database_url: Annotated[str, Secret()] = Field(
        default="",
        repr=False,
        description="SQLAlchemy URL, SQLite or PostgreSQL; empty means SQLite in data_dir. The certificate of a "
        "PostgreSQL on another machine is verified unless the URL has another sslmode than verify-full.",
    )
    ledger_log: Path | None = Field(
        default=None,
        description="Append-only log of charges outside the database; None means ledger.log in data_dir. "
        "Keep it on another disk than the database backups: a restored database is checked against it.",
    )
    artifact_url: str = Field(
        default="",
        pattern=r"^$|^[a-z][a-z0-9]*://[^@]+$",
        description="Object store for releasable files, for example s3://bucket/prefix; empty means data_dir. "
        "Credentials are read from the environment of the store's library, for example AWS_ACCESS_KEY_ID.",
    )
    records_url: str = Field(
        default="",
        pattern=r"^$|^[a-z][a-z0-9]*://[^@]+$",
        description="Object store for private records, encrypted, for example s3://bucket/prefix; empty means "
        "data_dir. Needs records_key_file.",
    )
    records_key_file: Path | None = Field(
        default=None, description="File with 32 random bytes: the key of the records in the object store."
    )
    database_connections: int = Field(
        default=15, ge=2, le=1000, description="Most connections that each process opens to PostgreSQL."
    )
    executor: Literal["local", "celery"] = Field(
        default="local", description="Who starts jobs: the built-in supervisor, or Celery workers."
    )
    broker_url: Annotated[str | None, Secret()] = Field(
        default=None, repr=False, description="Celery broker, for example redis://redis:6379/0."
    )
    queue: str = Field(
        default="cpu",
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="Celery queue a worker serves, and where the API sends jobs that name no device; "
        "those that do go to cpu or gpu.",
    )
    highest_priority: int = Field(
        default=5,
        ge=0,
        le=9,
        description="Highest priority that a job may name, from 0 to 9; jobs that name none have 5, so by default "
        "nobody can overtake others.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Where jobs train: cpu, cuda, cuda:1, …; auto takes CUDA where torch finds it.",
    )
    lease_seconds: int = Field(
        default=30, ge=5, le=3600, description="A worker that is silent for this long loses its job."
    )
    contributions_apart: bool = Field(
        default=False,
        description="Whether what a method computes from private records is computed in a process of its own, which "
        "ends with it, so that it can leave nothing behind; for installed methods of others. Needs device cpu.",
    )
    ranks: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that share a job's teachers on its machine, each with a GPU of its own where jobs train "
        "on GPUs; a job that cannot be shared runs in one.",
    )
    rank_timeout_seconds: int = Field(
        default=1800, ge=1, description="Longest time for which the ranks of a job wait for each other."
    )
    max_attempts: int = Field(
        default=3, ge=1, le=100, description="Lost workers in a row, without a stored step, before a job fails."
    )
    max_running_jobs: int = Field(default=1, ge=1, description="Jobs the local supervisor runs at the same time.")
    contact: str | None = Field(
        default=None, max_length=200, description="Whom readers of a report may ask; stands in every report."
    )
    commit: str | None = Field(
        default=None, pattern=r"^([0-9a-f]{7,64})?$", description="Commit of the source, for reports."
    )
    content_credentials_certificate_file: Path | None = Field(
        default=None,
        description="PEM file with the operator's certificate for Content Credentials (C2PA), its chain behind it, "
        "where files are handed out and where jobs run; None signs none. Needs content_credentials_key_file and the "
        "extra c2pa.",
    )
    content_credentials_key_file: Path | None = Field(
        default=None, description="PEM file with the private key of that certificate: a secret."
    )
    timestamp_url: Annotated[SecretStr, Secret()] = Field(
        default=SecretStr(""),
        description="Time stamp authority (RFC 3161) that witnesses the head of an account when a job ends: it gets a "
        "hash, and nothing else. Empty asks none. Needs the extra timestamp.",
    )
    inception_weights: Path | None = Field(
        default=None,
        description="Weights of ImageNet Inception as torch-fidelity publishes them, on every worker; None downloads "
        "them when a job first asks for that extractor.",
    )
    diffusers_folder: Path | None = Field(
        default=None,
        description="Folder of pipelines of diffusers, one subfolder each, which the API and every worker read; the "
        "subfolder flowers is the generator diffusers.flowers of private_evolution.",
    )
    max_upload_bytes: int = Field(default=4 * GIBIBYTE, ge=1, description="Largest accepted request body.")
    upload_hours: int = Field(
        default=24, ge=1, le=24 * 30, description="Time after which an unfinished resumable upload is removed."
    )
    decode_memory_bytes: int = Field(
        default=8 * GIBIBYTE, ge=2**28, description="Address space of the process that reads an upload."
    )
    decode_seconds: int = Field(
        default=1800, ge=1, description="Time, of the clock and of the processor, after which that process is killed."
    )
    host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port the API listens on.")
    drain_seconds: int = Field(
        default=20,
        ge=0,
        le=3600,
        description="How long datalens serve, once told to stop, lets open requests go on; then it cuts them off.",
    )
    root_path: str = Field(
        default="", description="Path prefix under which a reverse proxy shows the service, for example /datalens."
    )
    trusted_proxies: str = Field(
        default="127.0.0.1 ::1",
        description="Addresses and networks of reverse proxies whose X-Forwarded-… headers are believed, with spaces "
        "between them.",
    )
    requests_per_minute: int = Field(
        default=12_000,
        ge=1,
        description="Requests a key may send per minute, if it has no limit of its own. API "
        "processes with the same Redis as broker share it; otherwise each counts for itself.",
    )
    concurrent_requests: int = Field(
        default=128, ge=1, description="Requests of a key that one API process serves at once, if it has no own limit."
    )
    wrong_keys_per_minute: int = Field(
        default=60,
        ge=1,
        description="Wrong keys that one address may send per minute before it gets 429; shared by API processes as "
        "requests_per_minute is.",
    )
    tenant_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of records on the disk and of announced uploads that a tenant may have, if it has no quota "
        "of its own; None is no limit, here and below.",
    )
    tenant_datasets: int | None = Field(
        default=None, ge=0, description="Data sets of a tenant without a quota of its own."
    )
    tenant_jobs: int | None = Field(
        default=None, ge=0, description="Jobs and audits at once of a tenant without a quota of its own."
    )
    tenant_requests_per_minute: int | None = Field(
        default=None, ge=1, description="Requests a minute of all keys of a tenant without a quota of its own."
    )
    webhooks_to_private_addresses: bool = Field(
        default=False, description="Whether webhooks may go to private addresses: loopback, private and link-local."
    )
    public_url: str = Field(
        default="",
        pattern=r"^$|^https?://[^/?#@\s]+$",
        description="Address under which browsers reach the service, without the root path, for example "
        "https://datalens.example.org; needed for single sign-on and mail.",
    )
    oidc_issuer: str = Field(
        default="",
        pattern=r"^$|^https://[^?#@\s]+$|^http://(localhost|127\.0\.0\.1)(:\d+)?(/[^?#@\s]*)?$",
        description="OpenID provider for single sign-on, for example https://login.example.org/realms/lab; empty means "
        "API keys alone.",
    )
    oidc_client_id: str = Field(default="", description="Client id of this service at the OpenID provider.")
    oidc_client_secret: Annotated[SecretStr, Secret()] = Field(
        default=SecretStr(""), description="Client secret; empty means a public client, which PKCE protects."
    )
    oidc_requested_scopes: str = Field(
        default="openid profile",
        pattern=r"^openid( [\x21\x23-\x5b\x5d-\x7e]+)*$",
        description="OAuth scopes that sign-in asks the provider for; some providers add groups only for one of these.",
    )
    oidc_scopes_claim: str = Field(
        default="groups", min_length=1, description="Claim of the ID token whose values say what a person may do."
    )
    oidc_scopes: dict[str, str] = Field(
        default={},
        description="JSON that maps values of that claim to a role (owner, operator, steward, consumer) or to scopes, "
        'for example {"curators": "owner", "lab": "jobs:read releases:read"}. Other values grant nothing.',
    )
    oidc_tenant_claim: str = Field(
        default="",
        description="Claim that names the tenant, by name or id; empty means the first for everybody.",
    )
    smtp_url: Annotated[SecretStr, Secret()] = Field(
        default=SecretStr(""),
        description="Mail server for messages about jobs: smtps://user:password@host for TLS, smtp:// for STARTTLS; "
        "empty means no mail.",
    )
    mail_sender: str = Field(default="", description="Address that mail comes from.")
    mail_domains: str = Field(
        default="", description="Domains whose addresses may get mail, with spaces between them; no other gets any."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe message that is logged."
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_come_from_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Add secrets from the files that variables name; what a caller gives goes before them."""
        variables = {f"{PREFIX}{name.upper()}": name for name in secret_settings()}
        given = {variable for variable, name in variables.items() if name in values}
        found = read_secrets(variables, given, os.environ)
        return values | {variables[variable]: value for variable, value in found.items()}

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.executor == "celery" and not self.broker_url:
            raise ValueError(
                speak("⟦DATALENS_EXECUTOR⟧ celery needs ⟦DATALENS_BROKER_URL⟧, as redis://localhost:6379/0.")
            )
        if self.ranks > 1 and self.device.startswith("cuda:"):
            raise ValueError(
                speak("⟦DATALENS_RANKS⟧ uses the first GPUs: set ⟦DATALENS_DEVICE⟧ to cuda, not one of them.")
            )
        if self.contributions_apart and (self.device, self.ranks) != ("cpu", 1):
            raise ValueError(
                speak("⟦DATALENS_CONTRIBUTIONS_APART⟧ needs ⟦DATALENS_DEVICE⟧ cpu and one of ⟦DATALENS_RANKS⟧.")
            )
        if bool(self.records_url) != (self.records_key_file is not None):
            raise ValueError(speak("⟦DATALENS_RECORDS_URL⟧ and ⟦DATALENS_RECORDS_KEY_FILE⟧ go together."))
        if (self.content_credentials_certificate_file is None) != (self.content_credentials_key_file is None):
            raise ValueError(
                speak(
                    "⟦DATALENS_CONTENT_CREDENTIALS_CERTIFICATE_FILE⟧ and ⟦DATALENS_CONTENT_CREDENTIALS_KEY_FILE⟧ go "
                    "together."
                )
            )
        return self

    @model_validator(mode="after")
    def _features_are_complete(self) -> Self:
        url = self.smtp_url.get_secret_value()
        if url and not url.startswith(("smtp://", "smtps://")):
            raise ValueError(speak("⟦DATALENS_SMTP_URL⟧ must begin with smtp:// or smtps://."))
        authority = self.timestamp_url.get_secret_value()
        if authority and not authority.startswith(("http://", "https://")):
            raise ValueError(speak("⟦DATALENS_TIMESTAMP_URL⟧ must begin with http:// or https://."))
        features = [
            ("Single sign-on", self.oidc_issuer, ("public_url", "oidc_client_id", "oidc_scopes")),
            ("Mail", url, ("public_url", "mail_sender", "mail_domains")),
        ]
        for feature, wanted, needed in features:
            missing = [f"{PREFIX}{name.upper()}" for name in needed if not getattr(self, name)]
            if wanted and missing:
                raise ValueError(f"{feature} also needs {', '.join(missing)}.")
        return self

    @model_validator(mode="after")
    def _no_variable_is_misspelt(self) -> Self:
        for name, setting in find_unknown_variables(os.environ).items():
            if setting is not None:
                raise ValueError(f"{name} is no setting; the nearest is {setting}. Rename or remove the variable.")
        return self

    @field_validator("artifact_url")
    @classmethod
    def _local_files_are_synced(cls, url: str) -> str:
        if url.startswith("file:"):
            raise ValueError("This names no object store; leave it empty for files on this machine.")
        return url

    @field_validator("database_url")
    @classmethod
    def _databases_show_certificates(cls, url: str) -> str:
        """Have the certificate of a PostgreSQL on another machine verified: libpq falls back to none by itself."""
        parts = _split_url(url)
        if not parts.scheme.startswith("postgres"):
            return url
        named = parse_qs(parts.query, keep_blank_values=True)
        # Whoever names an authority means it, also where a tunnel ends on this machine.
        if "sslmode" not in named and ("sslrootcert" in named or not _is_on_this_machine(parts, named)):
            url = _with_parameter(url, "sslmode", "verify-full")
            named["sslmode"] = ["verify-full"]
        if named.get("sslmode") == ["verify-full"] and "sslrootcert" not in named:
            url = _with_parameter(url, "sslrootcert", _find_authorities())
        return url

    @field_validator("broker_url")
    @classmethod
    def _brokers_show_certificates(cls, url: str | None) -> str | None:
        """Have the certificate of a Redis with TLS verified: kombu takes any unless the URL says otherwise."""
        if url is None or _split_url(url).scheme != "rediss" or VERIFIES in url:
            return url
        return _with_parameter(url, "ssl_cert_reqs", "required")

    @field_validator("root_path")
    @classmethod
    def _root_path_is_a_path(cls, path: str) -> str:
        if not re.fullmatch(ROOT_PATH, path):
            raise ValueError("A root path is like /datalens or /lab/datalens, without a slash at its end.")
        return path

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_have_addresses(cls, proxies: str) -> str:
        for proxy in proxies.split():
            ipaddress.ip_network(proxy)
        return proxies

    @property
    def public_address(self) -> str:
        """Return the address by which browsers reach the service, for links outside of it."""
        return self.public_url + self.root_path

    @property
    def default_quotas(self) -> dict[str, int | None]:
        """Return the quotas of tenants that have none of their own."""
        return {
            "bytes": self.tenant_bytes,
            "datasets": self.tenant_datasets,
            "jobs": self.tenant_jobs,
            "requests_per_minute": self.tenant_requests_per_minute,
        }

    @property
    def url(self) -> str:
        """Return the URL of the database, with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'datalens.db'}"

    @property
    def ledger_log_path(self) -> Path:
        """Return the path of the charge log, with the default filled in."""
        return self.ledger_log or self.data_dir.absolute() / "ledger.log"


class EmbeddedSettings(Settings):
    """Settings of a run without a service: nobody can look at the records through this program."""

    served: ClassVar[bool] = False

    @classmethod
    def from_folder(cls, data_dir: Path) -> Self:
        """Return settings for a store of its own in a folder, whatever service the environment describes.

        Raises:
            InvalidInput: A variable is unusable.
        """
        with convert_validation_errors():
            return cls(data_dir=data_dir, database_url="", ledger_log=None, executor="local", broker_url=None)


@contextmanager
def convert_validation_errors() -> Generator[None]:
    """Name the variable of an unusable value."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = "".join(f"{PREFIX}{part}: ".upper() for part in first["loc"])
        raise InvalidInput(f"{location}{first['msg'].removeprefix('Value error, ')}") from error


def _split_url(url: str) -> SplitResult:
    """Split a URL, or refuse it without a word of it: what stands in a wrong place may be a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            "This is no URL of a server. Write what is neither letter nor digit in its password with percent signs."
        ) from None
    return parts


def _is_on_this_machine(parts: SplitResult, named: dict[str, list[str]]) -> bool:
    """Return whether all hosts of a PostgreSQL URL are named, and are this machine."""
    hosts = [parts.hostname or "", *",".join(named.get("host", []) + named.get("hostaddr", [])).split(",")]
    found = [_without_port(host) for host in hosts if host]
    return bool(found) and all(host == "localhost" or host.startswith("/") or _is_loopback(host) for host in found)


def _without_port(host: str) -> str:
    return re.sub(r"^(\[[^]]*\]|[^:[]*):\d+$", r"\1", host).strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _with_parameter(url: str, name: str, value: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(value, safe='/')}"


def _find_authorities() -> str:
    """Return the file of authorities that verify a server: what libpq is told by itself, else those of this system."""
    own = Path("~/.postgresql/root.crt").expanduser()
    named = [os.environ.get("PGSSLROOTCERT"), str(own), ssl.get_default_verify_paths().cafile, *_AUTHORITIES]
    # libpq knows the authorities of the system by this name if it was built for that system.
    return next((path for path in named if path and Path(path).is_file()), "system")


def secret_settings() -> tuple[str, ...]:
    """Return the names of the settings that may hold a password or a key, each of which may stand in a file."""
    fields = Settings.model_fields.items()
    return tuple(name for name, field in fields if any(isinstance(mark, Secret) for mark in field.metadata))


def find_unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """Find variables with the prefix of the settings that set nothing.

    Returns:
        By each name the setting that was probably meant; None where no name is near, as for variables that Kubernetes
        makes for a service with the name of this one.
    """
    files = [f"{name.upper()}{SUFFIX}" for name in secret_settings()]
    settings = [*(name.upper() for name in Settings.model_fields), *files]
    known = _OTHER_VARIABLES | {f"{PREFIX}{name}" for name in settings}
    unknown = (name for name in sorted(names) if name.upper().startswith(PREFIX) and name.upper() not in known)
    return {name: _nearest(name.upper().removeprefix(PREFIX), settings) for name in unknown}


def _nearest(written: str, settings: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(written, settings, n=1, cutoff=_ALIKE)
    return f"{PREFIX}{near[0]}" if near else None

"""Names of fields and options in the words of the interface that a reader uses.

An error that begins on a page speaks of fields of the page, one over REST of members, one at a terminal of options.
Texts name such a thing as `⟦records_per_unit⟧`; `speak` writes it out in the voice of the reader. Members of
requests other than an upload have the request in front: `⟦spec.epsilon⟧`, `⟦raise.reason⟧`. Parameters of methods,
settings of the evaluation and variables of the operator follow a rule (`RULES`), because plug-ins add to them.

A text that is kept for a later reader is kept as it is, with its names as `⟦name⟧`, and spoken when it is shown.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Voice(StrEnum):
    """The interface through which a text is read."""

    REST = "rest"
    """Members of JSON and of forms; arguments of Python have the same names."""
    PAGE = "page"
    """Fields of the web pages."""
    COMMAND_LINE = "command-line"
    """Options of `datalens`."""


class Term(NamedTuple):
    """One thing under its three names."""

    rest: str
    page: str
    command_line: str


def _member(name: str, page: str, command_line: str | None = None) -> Term:
    """Return a member of REST that is an option of the same name, unless another one is given."""
    return Term(name, f"“{page}”", command_line or f"--{name.replace('_', '-')}")


def _unlisted(name: str, command_line: str | None = None) -> Term:
    """Return a member of REST for which the pages have no field, and the command line no option unless one is given."""
    elsewhere = f"`{name}` of the REST API"
    return Term(name, elsewhere, command_line or elsewhere)


def _field(name: str, page: str) -> Term:
    """Return a member of REST that is a field of a page and no option."""
    return _member(name, page, f"`{name}` of the REST API")


def _parameter(name: str) -> Term:
    return Term(name, f"the parameter {name}", f"--set {name}")


def _evaluation(name: str) -> Term:
    return _unlisted(f"evaluation.{name}", f"--set evaluation.{name}")


def _variable(name: str) -> Term:
    # The operator has one interface, whoever passes the sentence on.
    return Term(*3 * (f"DATALENS_{name}",))


RULES: Final[dict[str, Callable[[str], Term]]] = {
    "method.": _parameter,
    "evaluation.": _evaluation,
    "DATALENS_": _variable,
}
"""Rules for names by their beginning."""

TERMS: Final[dict[str, Term]] = {
    "records_per_unit": _member("records_per_unit", "Most images of one person"),
    "classes_per_unit": _member("classes_per_unit", "Most classes of one person"),
    "unit": _member("unit", "What one is called"),
    "class_names": _member("class_names", "Names of the classes"),
    "confirmation": Term(
        "POST /v1/datasets/{dataset_id}:confirm", "the page of the data set", "`datalens datasets confirm`"
    ),
    "epsilon": _member("epsilon", "Lifetime privacy budget ε"),
    "delta": _member("delta", "δ"),
    "shares_budget_with": _member("shares_budget_with", "Share the budget of"),
    "leave_out_constant_images": _member("leave_out_constant_images", "Leave out images of a single colour"),
    "ignore_groups": _member("ignore_groups", "Protect single images, although the file groups them"),
    "allow_identifying_classes": _member("allow_identifying_classes", "These names identify nobody: publish them"),
    "skip_unreadable": _member("skip_unreadable", "Leave out files that cannot be read"),
    "encoding": _member("encoding", "Encoding of names and tables"),
    "label_column": _member("label_column", "Column of labels"),
    "group_column": _member("group_column", "Column of persons"),
    "prepare_size": Term("prepare_size", "“Size” (below “Prepare them”)", "--prepare-size"),
    "prepare_window": _member("prepare_window", "Values shown"),
    # The rest of an upload.
    "name": _member("name", "Name"),
    "public_test": _unlisted("public_test", "--public-test"),
    "public_records": _member("public_records", "All of these images are public"),
    "public_license": _member("public_license", "Licence of public images"),
    "prepare_fit": _member("prepare_fit", "Other shapes"),
    "prepare_colour": _member("prepare_colour", "Channels"),
    "prepare_frame": _member("prepare_frame", "Frame"),
    # A job that is planned, submitted or copied.
    "spec.method": _member("method", "Parameters of the method"),
    "spec.preset": _member("preset", "Method"),
    "spec.purpose": _member("purpose", "Method"),
    "spec.epsilon": _member("epsilon", "ε this job may spend"),
    "spec.delta": _unlisted("delta", "--delta"),
    "spec.seed": _member("seed", "Seed"),
    "spec.synthetic_images": _member("synthetic_images", "Synthetic images to pack"),
    "spec.evaluation": _member("evaluation", "Measure how useful the images are"),
    "spec.device": _unlisted("device", "--device"),
    "spec.public_data": _member("public_data", "Start from public images"),
    "spec.class_shares": _member("class_shares", "Frequencies of the classes"),
    "spec.accuracy": _member("accuracy", "Wanted accuracy"),
    "spec.priority": _unlisted("priority", "--priority"),
    "spec.release": _member("release", "A second person decides"),
    # A decision about a result.
    "decision.reason": _member("reason", "Why"),
    # Names, tags and notes of what there is.
    "labels.name": _member("name", "Name"),
    "labels.tags": _member("tags", "Tags, with commas between", "--tag"),
    "labels.notes": _member("notes", "Notes"),
    # A budget that is raised.
    "raise.epsilon": _field("epsilon", "New lifetime budget ε"),
    "raise.reason": _field("reason", "Why, and who agreed"),
    # A new key.
    "key.name": _member("name", "Whose key is it?"),
    "key.role": _member("role", "Role"),
    "key.scopes": _unlisted("scopes"),
    "key.expires_at": _member("expires_at", "Ends after days", "--days"),
    # A release, and a new link to it.
    "release.title": _member("title", "Title"),
    "release.license": _member("license", "Licence"),
    "link.partner": _member("partner", "Whom is it for?"),
    "link.expires_at": _member("expires_at", "Ends after days", "--days"),
    # A new webhook.
    "webhook.url": _field("url", "Address"),
    "webhook.events": _field("events", "Events"),
    # An audit by attacks; pages show them, and submit none.
    "audit.attacks": _unlisted("attacks", "--attack"),
    "audit.references": _unlisted("references", "--references"),
    "audit.groups": _unlisted("groups", "--group"),
    "audit.seed": _unlisted("seed", "--seed"),
    # Downloads of a job.
    "download.synthetic_images": _member("synthetic_images", "Images"),
    "download.per_class": _unlisted("per_class", "--per-class"),
    "download.classes": _member("classes", "Only some classes"),
    "download.format": _member("format", "Format"),
    "download.seed": _unlisted("seed", "--seed"),
    "record.label": _unlisted("label", "--label"),
    # Words for all of them.
    "member": Term("member", "field", "option"),
    "members": Term("members", "fields", "options"),
    # Headers, and parts of addresses.
    "upload_metadata": Term("Upload-Metadata", "the name of the file", "the name of the file"),
    "job_files": Term("`links` of the job", "the page of the job", "`datalens jobs files`"),
    "job_bundle": Term(
        "/v1/jobs/{job_id}/bundle of a service",
        "the downloads of the page of a job",
        "`datalens jobs download --bundle`",
    ),
    "public_key": Term("/v1/signing-key of the service", "the page “Signing key”", "/v1/signing-key of the service"),
    "budget_remaining": Term(
        "`budget.epsilon_remaining`",
        "the ε that “A new job may spend” says",
        "the ε that `datalens datasets show` says is left",
    ),
    "trace": Term("the value of `instance`", "when it happened", "when it happened"),
    "usage": Term("/v1/usage", "the page “Usage”", "/v1/usage of the service"),
    "to_share": Term("audience=releasable", "the one to share", "--releasable"),
    # Advice, where interfaces differ by more than a name.
    "send_key": Term(
        "send the header `Authorization: Bearer dlk_…` with an API key",
        "sign in with an API key",
        "name an API key with --api-key",
    ),
    "send_version": Term(
        "send the header `Tus-Resumable: 1.0.0`; tus clients and the Python client do",
        "reload the page and send the file again",
        "install the version of `datalens` that the service has",
    ),
    "ask_anew": Term("choose another Idempotency-Key", "reload the page and repeat it", "repeat the command"),
    "send_form": Term("send it again as multipart/form-data (curl: -F)", "send the file again", "repeat the command"),
    "send_as_described": Term(
        "send it as the API description says; curl and the Python client do",
        "reload the page and repeat it",
        "install the version of `datalens` that the service has",
    ),
    "send_media_type": Term(
        "send JSON as application/json, and uploads as multipart/form-data (curl: -F)",
        "reload the page and repeat it",
        "install the version of `datalens` that the service has",
    ),
    "correct_members": Term(
        "correct the members named in `errors`, or what `detail` says, and send it again",
        "correct the fields that are named, and send it again",
        "correct the options that are named, and repeat the command",
    ),
    "try_plan": Term(
        "`POST /v1/plans` tries it out",
        "the page “Plan a job” tries it out",
        "`datalens jobs submit --dry-run` tries it out",
    ),
    "accept_low_utility": Term(
        "send `accept_low_utility`: true", "tick “Spend budget on it anyway”", "say --accept-low-utility"
    ),
    "as_told": Term("for as many seconds as `Retry-After` says", "for a minute", "for a minute"),
    "use_allowed": Term(
        "use one of the methods in the `Allow` header",
        "reload the page and repeat it",
        "install the version of `datalens` that the service has",
    ),
    "ask_range": Term(
        "ask for a range within the length that Content-Range names, or leave the header out",
        "download the file again",
        "download the file again",
    ),
    "ask_offset": Term(
        "ask with HEAD how much is there, and go on from `Upload-Offset`",
        "send the file again",
        "send the file again with --resume",
    ),
}
"""Every name that a text may use in `⟦…⟧`, beside those of `RULES`."""

HEADER: Final = "Datalens-Voice"
"""Request header by which a client chooses the voice of its errors."""

_TOKEN: Final = re.compile(r"⟦([\w.]+)⟧")
_voice: ContextVar[Voice] = ContextVar("voice", default=Voice.REST)


def speak(text: str) -> str:
    """Write out all names in the voice of the present reader; unknown ones stay as they are."""
    return _TOKEN.sub(_spoken, text)


_TEXTS: Final = frozenset({"detail", "message", "reason"})
"""Members of documents that are sentences of ours."""


def spoken(document: Any) -> Any:
    """Write out the sentences of a JSON document that was kept for a later reader."""
    if isinstance(document, Mapping):
        return {name: _spoken_member(name, value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [spoken(item) for item in document]
    return document


def _spoken_member(name: str, value: Any) -> Any:
    """Write out a member, but never names of files and classes: a class is confirmed as it would be published."""
    return speak(value) if isinstance(value, str) and name in _TEXTS else spoken(value)


def speak_path(path: Sequence[str | int]) -> str | None:
    """Return the name of a member of a request, as `speak` would write it; None if it has none.

    Args:
        path: Path of the member, with the kind of request in front unless that is an upload.
    """
    name = ".".join(map(str, path))
    term = _find(name)
    return None if term is None else _in_voice(term)


def current_voice() -> Voice:
    """Return the interface through which texts in this context are read."""
    return _voice.get()


@contextmanager
def spoken_to(voice: Voice) -> Iterator[None]:
    """Have texts within the block read through another interface."""
    token = _voice.set(voice)
    try:
        yield
    finally:
        _voice.reset(token)


def _spoken(found: re.Match[str]) -> str:
    term = _find(found[1])
    name = found[1] if term is None else _in_voice(term)
    begins = found.start() == 0 or found.string[: found.start()].endswith(". ")
    return name[0].upper() + name[1:] if begins and " " in name and name[0].islower() else name


def _find(name: str) -> Term | None:
    if name in TERMS:
        return TERMS[name]
    return next((rule(name.removeprefix(start)) for start, rule in RULES.items() if name.startswith(start)), None)


def _in_voice(term: Term) -> str:
    return {Voice.REST: term.rest, Voice.PAGE: term.page, Voice.COMMAND_LINE: term.command_line}[_voice.get()]

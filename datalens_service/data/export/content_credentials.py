"""Content Credentials (C2PA 2.4): manifests that the operator's certificate signs, in a PNG or beside a model.

https://spec.c2pa.org/specifications/specifications/2.4/specs/C2PA_Specification.html

c2pa-python, of the extra `c2pa`, signs and reads them. It knows no layout of safetensors and ONNX and would call a
manifest inside them invalid, so that of a model is a file of its own (section "External Manifests").
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from PIL import Image

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.base.settings import Settings

MANIFEST_SUFFIX: Final = ".c2pa"
"""Ending of the name of a file with the manifest of the file whose name stands before it."""
MANIFEST_TYPE: Final = "application/c2pa"
TRAINED_ALGORITHMIC_MEDIA: Final = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
"""IPTC Digital Source Type of media made by a trained model."""
TRAINED_ALGORITHMIC_DATA: Final = "http://c2pa.org/digitalsourcetype/trainedAlgorithmicData"
"""C2PA's source type of what a trained algorithm made and is no media, as a model."""

_PRODUCT: Final = "DataLens Service"
_PNG: Final = "image/png"
_ANY_BYTES: Final = "application/octet-stream"
_MODEL_TYPES: Final = {".onnx": "c2pa.types.model.onnx", ".safetensors": "c2pa.types.model"}
"""Values of the assertion of the asset's type, by the ending of a model's file."""
_CURVES: Final = {"secp256r1": "es256", "secp384r1": "es384", "secp521r1": "es512"}


class CredentialFiles(NamedTuple):
    """The operator's certificate with its chain, leaf first, and its private key: PEM."""

    certificate: Path
    key: Path


class CredentialFinding(NamedTuple):
    """The statement of a manifest, and whether it may be believed.

    Attributes:
        state: "trusted" if an authority that the reader named vouches for the certificate; "valid" if the file is as
            it was signed, by whoever that is; "invalid" if the file or the manifest was changed.
        signer: Organisation and name in the certificate, as it states them.
        synthetic: True if it says that a trained model made the file.
        reasons: Codes of C2PA for what is wrong.
    """

    state: Literal["trusted", "valid", "invalid"]
    signer: str
    synthetic: bool
    reasons: tuple[str, ...]


class ContentCredentials:
    """Signs released files in the name of the operator.

    Raises:
        InvalidInput: A file cannot be read, the two do not belong together, or C2PA takes no such certificate.
        WorkerUnavailable: The extra c2pa is not installed.
    """

    def __init__(self, files: CredentialFiles) -> None:
        self.files: Final = files
        library = _library()
        chain, key = _read(files.certificate), _read(files.key)
        info = library.C2paSignerInfo(_algorithm(chain, key), chain, key, None)
        try:
            self._signer = library.Signer.from_info(info)
            trial = read_credentials(self.mark_png(_draw_trial()))
        except library.C2paError as error:
            raise InvalidInput(f"{_UNUSABLE} {error}") from None
        if trial is None or trial.state == "invalid":
            raise InvalidInput(f"{_UNUSABLE} {', '.join(trial.reasons if trial else ())}")

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        """Return those of a deployment; None if it has no certificate."""
        if settings.content_credentials_certificate_file is None or settings.content_credentials_key_file is None:
            return None
        return cls(
            CredentialFiles(settings.content_credentials_certificate_file, settings.content_credentials_key_file)
        )

    def mark_png(self, png: bytes) -> bytes:
        """Return a PNG with a manifest that says that a trained model made it."""
        marked = io.BytesIO()
        self._builder(TRAINED_ALGORITHMIC_MEDIA).sign(self._signer, _PNG, io.BytesIO(png), marked)
        return marked.getvalue()

    def sign_model(self, path: Path) -> bytes:
        """Return the manifest of a model's file, which stays as it is."""
        kind = {"label": "c2pa.asset-type", "data": {"types": [{"type": _MODEL_TYPES[path.suffix]}]}}
        builder = self._builder(TRAINED_ALGORITHMIC_DATA, kind)
        builder.set_no_embed()
        with path.open("rb") as model:
            manifest: bytes = builder.sign(self._signer, _ANY_BYTES, model, io.BytesIO())
        return manifest

    def _builder(self, source_type: str, *further: Mapping[str, Any]) -> Any:
        """Return a builder without thumbnails, which would be larger than the images, and without a title."""
        library = _library()
        created = {"actions": [{"action": "c2pa.created", "digitalSourceType": source_type}]}
        definition = {
            "claim_generator_info": [{"name": _PRODUCT}],
            "assertions": [{"label": "c2pa.actions.v2", "data": created}, *further],
        }
        return library.Builder(definition, context=_context({"builder": {"thumbnail": {"enabled": False}}}))


def _draw_trial() -> bytes:
    """Draw the smallest PNG."""
    picture = io.BytesIO()
    Image.new("L", (1, 1)).save(picture, format="PNG")
    return picture.getvalue()


def is_model(name: str) -> bool:
    """Tell by its name whether a file is a model that can have a manifest."""
    return Path(name).suffix in _MODEL_TYPES


def read_credentials(
    content: bytes, manifest: bytes | None = None, authority: str | None = None
) -> CredentialFinding | None:
    """Read the manifest of a file without asking anybody on the network; None if there is none, or can be none.

    Args:
        manifest: A manifest beside the file, instead of one inside it.
        authority: Certificates, PEM, of authorities that the reader trusts.

    Raises:
        WorkerUnavailable: The extra c2pa is not installed.
    """
    library = _library()
    trust = {} if authority is None else {"trust": {"trust_anchors": authority}}
    try:
        reader = library.Reader(_ANY_BYTES, io.BytesIO(content), manifest, _context(trust))
        document = json.loads(reader.json())
    except (library.C2paError.ManifestNotFound, library.C2paError.NotSupported):
        return None
    except library.C2paError as error:
        return CredentialFinding("invalid", "", False, (str(error),))
    return _finding(document)


def _finding(document: Mapping[str, Any]) -> CredentialFinding:
    active = document["manifests"][document["active_manifest"]]
    signature = active.get("signature_info") or {}
    failures = document.get("validation_results", {}).get("activeManifest", {}).get("failure", [])
    state = document.get("validation_state", "Invalid").lower()
    return CredentialFinding(
        state=state if state in ("trusted", "valid") else "invalid",
        signer=", ".join(filter(None, (signature.get("issuer"), signature.get("common_name")))),
        synthetic=any(_says_synthetic(assertion) for assertion in active.get("assertions", [])),
        reasons=tuple(failure["code"] for failure in failures),
    )


def _says_synthetic(assertion: Mapping[str, Any]) -> bool:
    if not assertion["label"].startswith("c2pa.actions"):
        return False
    sources = {action.get("digitalSourceType") for action in assertion["data"].get("actions", [])}
    return bool(sources & {TRAINED_ALGORITHMIC_MEDIA, TRAINED_ALGORITHMIC_DATA})


def _library() -> Any:
    try:
        import c2pa
    except ImportError as error:
        raise WorkerUnavailable(
            "Content Credentials need c2pa-python. Install it with: pip install 'datalens-service[c2pa]'"
        ) from error
    return c2pa


def _context(settings: Mapping[str, Any]) -> Any:
    library = _library()
    offline = {"verify": {"remote_manifest_fetch": False, "ocsp_fetch": False, "verify_after_sign": False}}
    return library.Context(library.Settings.from_dict({**offline, **settings}))


_CERTIFICATE: Final = "⟦DATALENS_CONTENT_CREDENTIALS_CERTIFICATE_FILE⟧"
_KEY: Final = "⟦DATALENS_CONTENT_CREDENTIALS_KEY_FILE⟧"
_UNUSABLE: Final = (
    f"The certificate of {_CERTIFICATE} cannot sign: C2PA asks for a valid one for digital signatures, with its chain, "
    "and with emailProtection or documentSigning as extended use."
)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"The files of {_CERTIFICATE} and {_KEY} cannot be read.") from error


def _algorithm(chain: bytes, key: bytes) -> str:
    """Return C2PA's name of the algorithm of a key, which has to be that of the first certificate.

    Raises:
        InvalidInput: It is not, or one of them is no PEM that can be used.
    """
    try:
        private = load_pem_private_key(key, password=None)
        certified = x509.load_pem_x509_certificates(chain)[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause may quote the key, so it is not chained.
        raise InvalidInput(f"{_CERTIFICATE} and {_KEY} have to be PEM, the key without a password.") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != certified.public_bytes(*form):
        raise InvalidInput(f"The key of {_KEY} is not that of the certificate.")
    if isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name in _CURVES:
        return _CURVES[private.curve.name]
    if isinstance(private, rsa.RSAPrivateKey):
        return "ps256"
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return "ed25519"
    raise InvalidInput(f"The key of {_KEY} has to be of P-256, P-384, P-521, RSA or Ed25519.")

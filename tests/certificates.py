"""Certificates for servers that tests start on this machine, and of those who sign files."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes, CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from datalens_service.base.clock import utc_now


def issue_certificate(path: Path) -> None:
    """Write a certificate of 127.0.0.1 and localhost that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(utc_now() - timedelta(days=1)).not_valid_after(utc_now() + timedelta(days=1))
    hosts = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + secret)


class SignerFiles(NamedTuple):
    """Files of somebody who may sign: certificate with its chain, key, and the certificate of the authority alone."""

    certificate: Path
    key: Path
    authority: Path


def issue_signer(
    folder: Path,
    key: CertificateIssuerPrivateKeyTypes | None = None,
    use: ObjectIdentifier | None = None,
    days: int = 1,
) -> SignerFiles:
    """Let an authority of its own certify a key for signatures, until `days` from now."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, key = ec.generate_private_key(ec.SECP256R1()), key or ec.generate_private_key(ec.SECP256R1())
    root = _begin("Authority", "Authority", authority.public_key(), 1)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    root = root.add_extension(_key_usage(certificates=True), True)
    root = root.add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), False)
    leaf = _begin("Signer", "Authority", key.public_key(), days)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    leaf = leaf.add_extension(_key_usage(certificates=False), True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([use or ExtendedKeyUsageOID.EMAIL_PROTECTION]), True)
    leaf = leaf.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    leaf = leaf.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False)
    signed = [one.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) for one in (leaf, root)]
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files = SignerFiles(folder / "chain.pem", folder / "key.pem", folder / "authority.pem")
    for path, content in zip(files, (b"".join(signed), secret, signed[1]), strict=True):
        path.write_bytes(content)
    return files


def _begin(subject: str, issuer: str, key: CertificatePublicKeyTypes, days: int) -> x509.CertificateBuilder:
    names = [
        x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test Clinic"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        for name in (subject, issuer)
    ]
    now = utc_now()
    builder = x509.CertificateBuilder(names[1], names[0], key, x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=3)).not_valid_after(now + timedelta(days=days))


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    unused = dict.fromkeys((*names, "decipher_only"), False)
    return x509.KeyUsage(
        digital_signature=not certificates, key_cert_sign=certificates, crl_sign=certificates, **unused
    )

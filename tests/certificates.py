"""Certificates for servers that tests start on this machine."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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

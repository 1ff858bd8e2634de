"""The sandbox's certificate, judged by two foreign libraries: cryptography and OpenSSL."""

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store

from kubectl_nodelife.sandbox.tls import make_certificate


@pytest.fixture(scope="module", params=range(3))
def pair():
    """Several: a number with a leading zero must be written right."""
    return make_certificate()


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost"])
def test_it_vouches_for_loopback_and_nothing_else(pair, name: str) -> None:
    leaf, root = x509.load_pem_x509_certificates(pair.certificate.encode())
    builder = PolicyBuilder().store(Store([root])).time(datetime.now(UTC))
    is_name = name == "localhost"
    wanted = x509.DNSName(name) if is_name else x509.IPAddress(ipaddress.ip_address(name))
    assert builder.build_server_verifier(wanted).verify(leaf, []) == [leaf, root]
    elsewhere = builder.build_server_verifier(x509.DNSName("example.com"))
    with pytest.raises(x509.verification.VerificationError):
        elsewhere.verify(leaf, [])
    key = load_pem_private_key(pair.key.encode(), None)
    assert key.public_key() == leaf.public_key()


def test_each_has_keys_and_numbers_of_its_own(pair) -> None:
    other = make_certificate()
    certificates = [
        one
        for made in (pair, other)
        for one in x509.load_pem_x509_certificates(made.certificate.encode())
    ]
    assert len({one.serial_number for one in certificates}) == 4
    assert len({one.public_key().public_numbers() for one in certificates}) == 4


def test_a_strict_client_and_a_server_agree(pair) -> None:
    """Python verifies strictly from 3.13 on; kubectl does in test_kubectl.py."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        server.load_cert_chain(file.name)
    client = ssl.create_default_context(cadata=pair.certificate)
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    ends = [ssl.MemoryBIO() for _ in range(2)]
    there = server.wrap_bio(ends[0], ends[1], server_side=True)
    here = client.wrap_bio(ends[1], ends[0], server_hostname="127.0.0.1")
    for _ in range(3):
        for end in (here, there):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert here.getpeercert()["subject"] == ((("commonName", "kubectl-nodelife sandbox server"),),)

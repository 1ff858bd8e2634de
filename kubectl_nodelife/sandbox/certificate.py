"""A certificate for a server on loopback, made by trustme afresh for one run of the sandbox.

kubectl sends a token only over TLS. The key lives as long as the sandbox and vouches for this
machine's loopback addresses only. trustme and the cryptography library under it come with the
extra `sandbox`, for nothing else needs them.
"""

from __future__ import annotations

from typing import NamedTuple

from kubectl_nodelife.errors import Failed

_NAMES = ("localhost", "127.0.0.1", "::1")


class ServerKeyPair(NamedTuple):
    """A certificate with the authority that signed it behind it, and its key; both PEM.

    The certificate is what the server sends and, for it holds the authority, what a client trusts.
    """

    certificate: str
    key: str


def make_certificate() -> ServerKeyPair:
    """A certificate for 127.0.0.1, ::1 and localhost, with a new key, of a new authority.

    Raises Failed where trustme is not installed.
    """
    try:
        import trustme  # loads cryptography: 60 ms
    except ImportError:
        raise Failed(
            "the sandbox needs the package trustme for its certificate",
            remedy="install the extra: pip install 'kubectl-nodelife[sandbox]'",
        ) from None
    authority = trustme.CA(organization_name="kubectl-nodelife sandbox")
    issued = authority.issue_cert(*_NAMES, common_name="kubectl-nodelife sandbox")
    chain = [*(blob.bytes() for blob in issued.cert_chain_pems), authority.cert_pem.bytes()]
    return ServerKeyPair(b"".join(chain).decode(), issued.private_key_pem.bytes().decode())

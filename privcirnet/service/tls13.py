"""TLS 1.3 and nothing older.

gRPC's Python interface has no least version. It has one list of ciphers, which only concerns TLS 1.2: with a list that
does not fit a key (ciphers for RSA where the key is one of an elliptic curve, and the reverse), a handshake of TLS 1.2
finds no cipher and fails. A test tries it with OpenSSL.
"""

import os

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from privcirnet.errors import RuleError

_VARIABLE = "GRPC_SSL_CIPHER_SUITES"
_FOR_RSA, _FOR_CURVES = "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"


def require(certificate: bytes) -> None:
    """Leave no cipher of TLS 1.2 for a server with a certificate. gRPC reads this once, at its first use in a process.

    Args:
        certificate: PEM.

    Raises:
        RuleError: it is no certificate.
    """
    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as problem:
        rule, remedy = "a certificate must be PEM", "serve.py tls=trial makes an example"
        raise RuleError(rule, got=str(problem)[:100], remedy=remedy) from None
    os.environ[_VARIABLE] = _FOR_CURVES if isinstance(key, rsa.RSAPublicKey) else _FOR_RSA

"""The service that puts a server on a network: gRPC, TLS, identities, quotas, a store of keys, logs and metrics.

TLS 1.3 and nothing older: gRPC's Python interface has no least version. It has a list of ciphers, which only concerns
TLS 1.2. The one cipher of this list needs a key that both sides shared before, which nobody has: a handshake of TLS 1.2
finds no cipher and fails. gRPC reads the list when it is loaded, so this package comes first, and says so if it came
too late. A test tries TLS 1.2 with OpenSSL.

gRPC's own lines on stderr end here, too: every stranger's mistake makes one, without a limit. GRPC_VERBOSITY=ERROR, set
before the start, brings them back.
"""

import os
import sys

from privcirnet.errors import RuleError

_VARIABLE, _NONE = "GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305"

_IN_TIME = "grpc" not in sys.modules or os.environ.get(_VARIABLE) == _NONE
os.environ[_VARIABLE] = _NONE
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def require_tls13() -> None:
    """Ensure that gRPC takes no TLS but 1.3."""
    if not _IN_TIME:
        rule, remedy = "TLS must be 1.3", "import privcirnet.service before grpc"
        raise RuleError(rule, got="gRPC loaded already, with TLS 1.2", remedy=remedy)

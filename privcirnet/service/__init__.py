"""The service that puts a server on a network: gRPC, TLS, identities, quotas, a store of keys, logs and metrics."""

from privcirnet.service import tls13 as tls13  # before gRPC is loaded

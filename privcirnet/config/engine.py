"""What client and server have in common: the engine, and the program that it runs."""

from dataclasses import dataclass

from privcirnet.config.checks import choice, number
from privcirnet.config.run import RootConfig
from privcirnet.he.bfv.engines import ENGINES


@dataclass
class EngineConfig(RootConfig):
    """The engine of encrypted inference and its program, of either party."""

    program: str = "${root}/export/program"
    """program folder; not opened where server= or programs= is given."""
    model_key: str = ""
    """public key with which programs, or what a server says of them, must be signed; empty: any program."""
    engine: str = choice("kernel", ENGINES)
    """kernel (the server's compiled, on all cores), tenseal (the same, slower) or cleartext (hides nothing)."""
    weights_gb: float = number(4.0, least=0)
    """of encoded weights that engine=kernel keeps in memory, at most; others are encoded again for every image."""
    weights_folder: str = ""
    """where engine=kernel keeps encoded weights from one start to the next; as trusted as the program."""
    threads: int = number(0, least=0)
    """number of threads; 0: one for each core."""
    warm_up: bool = True
    """run an image first, where the server is, so that no other waits for kernels to be compiled."""
    tls: str = ""
    """folder of certificates. A client's: ca.crt, and client.crt and client.key or client.token. A server's:
    server.crt, server.key, and clients.crt or tokens.json; or trial, which makes them. Empty: plain, on loopback."""
    timeout_s: float = number(120.0, above=0)
    """seconds for which the other party may be silent."""
    prepared_folder: str = ""
    """where what is prepared stays from one start to the next; empty: in memory, or in state= of a server."""
    prepared_claims: str = ""
    """folder outside prepared_folder= that says what of it is unused; empty: in $XDG_STATE_HOME or ~/.local/state."""

"""The schema of `python -m benchmarks.load`."""

from dataclasses import dataclass

from privcirnet.artifact.folder import program_folder
from privcirnet.config.checks import check, check_name
from privcirnet.config.run import check_mode
from privcirnet.he.bfv.engines import ENGINES
from privcirnet.service.address import parse_address


@dataclass
class LoadConfig:
    """Settings of the load on a server: clients that ask for a while."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/load"
    """this run's directory."""
    server: str = "127.0.0.1:5050"
    """HOST:PORT of a serve.py."""
    tls: str = ""
    """the clients' folder, see infer.py; empty: plain, on loopback."""
    served: str = ""
    """name of one of the server's programs; empty: its only one."""
    clients: int = 4
    """at once, each in a process of its own."""
    seconds: float = 60.0
    """for which they ask, image after image."""
    engine: str = "kernel"
    """of the clients: kernel, or cleartext for a server that hides nothing."""
    mode: str = "interactive"
    """of the server's program: interactive, or ckks: one request and one answer for an image."""
    retries: int = 0
    """how often a client comes again where the server is busy or lost; 0: never, what goes wrong is counted."""
    prepare: int = 0
    """inferences that each client keeps prepared; what it has prepared when the time is over is lost. 0: none."""
    program: str = ""
    """program folder whose integer network the classes are compared with; empty: they are not."""
    metrics: str = ""
    """URL of the server's Prometheus metrics, for its memory; empty: its memory is not watched."""

    def __post_init__(self) -> None:
        check_name("engine", self.engine, ENGINES)
        check_mode(self.mode)
        self.program = program_folder(self.program)
        check(self.clients >= 1, "clients must be at least 1", self.clients, "use 4")
        check(self.seconds > 0, "seconds must be positive", self.seconds, "use 60")
        check(self.retries >= 0, "retries must be 0 or more", self.retries, "use 5, or 0 for none")
        check(self.prepare >= 0, "prepare must be 0 or more", self.prepare, "use 8, or 0 for no preparation")
        parse_address(self.server)

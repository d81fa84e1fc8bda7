"""The schemas of encrypted inference: infer.py, and serve.py for a server by itself."""

from dataclasses import dataclass, field

from privcirnet.config.data import DataConfig
from privcirnet.config.rules import check, check_name
from privcirnet.he.engines.interface import ENGINES
from privcirnet.he.protocol.transport.tcp import parse_address


@dataclass
class InferConfig:
    """Settings of infer.py: encrypted inference of held-out images, with its own server or another one's client."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/infer"
    """this run's directory; with server= it is ${root}/client if it is not named."""
    program: str = "${root}/export/program"
    """program folder; with server= it is not opened."""
    model_key: str = ""
    """public key with which the program, or what the server says of it, must be signed; empty: any program."""
    reference: str = "${root}/finetune"
    """run directory of the float network that encrypted predictions are compared with; empty for none, with server=."""
    engine: str = "kernel"
    """kernel (the server's compiled, on all cores), tenseal (the same, slower) or cleartext (hides nothing)."""
    server: str = ""
    """HOST:PORT of a serve.py: this is the client alone, and nothing is audited. Empty: both parties are run here."""
    processes: int = 1
    """both parties in one process, or each in its own with TCP on loopback in between (2)."""
    timeout_s: float = 600.0
    """seconds to wait for an answer of server=."""
    ui: bool = False
    """a page on loopback, instead of a report: choose an image there and see what goes by."""
    ui_port: int = 0
    """where the page is; 0: any port that is free."""
    images: int = 32
    """held-out images, from the first."""
    weights_gb: float = 4.0
    """of encoded weights that engine=kernel keeps in memory, at most; others are encoded again for every image."""
    weights_folder: str = ""
    """where engine=kernel keeps encoded weights from one start to the next; as trusted as the program."""
    threads: int = 0
    """number of threads; 0: one for each core."""
    profile: str = "${root}/export/profile.json"
    """profile that times are predicted with."""
    data: DataConfig = field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        check_name("engine", self.engine, ENGINES)
        check(self.images >= 1, "images must be at least 1", self.images, "use 32")
        check(min(two := (self.weights_gb, self.threads)) >= 0, "weights_gb, threads must be 0 or more", two, "use 0")
        check(self.processes in (1, 2), "processes must be 1 or 2", self.processes, "use 2 for a server of its own")
        check(self.timeout_s > 0, "timeout_s must be positive", self.timeout_s, "use 600")
        check(0 <= self.ui_port <= 0xFFFF, "ui_port must be in [0, 65535]", self.ui_port, "use 0 for a free one")
        if self.server:
            parse_address(self.server)
            self.out = f"{self.root}/client" if self.out == f"{self.root}/infer" else self.out


@dataclass
class ServeConfig:
    """Settings of serve.py: a program's server, for clients on TCP."""

    root: str = "outputs"
    """folder that holds the run directories."""
    program: str = "${root}/export/program"
    """program folder."""
    model_key: str = ""
    """public key with which the program must be signed; empty: any program."""
    host: str = "127.0.0.1"
    """address to listen at; beyond loopback read SECURITY.md first."""
    port: int = 5050
    """0: any that is free."""
    connections: int = 4
    """clients at once; others are asked to try again."""
    timeout_s: float = 120.0
    """seconds for which a client may be silent before it is disconnected."""
    rehearsal: bool = True
    """run one image in this process first, with a client of its own, which compiles the kernels on a new machine."""
    engine: str = "kernel"
    """kernel (compiled, all cores), tenseal (the same, slower) or cleartext (hides nothing)."""
    weights_gb: float = 4.0
    """of encoded weights that engine=kernel keeps in memory, at most; others are encoded again for every image."""
    weights_folder: str = ""
    """where engine=kernel keeps encoded weights from one start to the next; as trusted as the program."""
    threads: int = 0
    """number of threads; 0: one for each core."""

    def __post_init__(self) -> None:
        check_name("engine", self.engine, ENGINES)
        check(0 <= self.port <= 0xFFFF, "port must be in [0, 65535]", self.port, "use 5050, or 0 for a free one")
        check(self.connections >= 1, "connections must be at least 1", self.connections, "use 4")
        check(self.timeout_s > 0, "timeout_s must be positive", self.timeout_s, "use 120")
        check(min(two := (self.weights_gb, self.threads)) >= 0, "weights_gb, threads must be 0 or more", two, "use 0")

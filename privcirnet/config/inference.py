"""The schemas of encrypted inference: infer.py, serve.py for a server by itself, and the engine of both."""

from dataclasses import dataclass, field
from pathlib import Path

from privcirnet.artifact.folder import program_folder
from privcirnet.artifact.results import LINES, PARQUET
from privcirnet.config.checks import check, check_fields, choice, number
from privcirnet.config.run import ModeConfig, RootConfig
from privcirnet.he.bfv.engines import ENGINES
from privcirnet.he.planning.network_links import LINKS
from privcirnet.service.address import is_loopback, parse_address
from privcirnet.service.log import FORMS
from privcirnet.service.quotas import Quota
from privcirnet.service.shared.link import is_url
from privcirnet.service.store import StoreLimits


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


@dataclass
class InferConfig(EngineConfig, ModeConfig):
    """Settings of infer.py: encrypted inference of held-out images or pictures, with its own server or another's."""

    out: str = "${root}/infer"
    """this run's directory; else ${root}/pictures for a folder's, ${root}/client with server=; _rehearsal in clear."""
    reference: str = "${root}/finetune"
    """run directory of the float network that encrypted predictions are compared with, or its checkpoint; with server=
    empty for none."""
    server: str = ""
    """HOST:PORT of a serve.py: this is the client alone, and nothing is audited. Empty: both parties are run here."""
    processes: int = number(1, least=1, most=2)
    """both parties in one process, or each in its own with gRPC on loopback in between (2)."""
    served: str = ""
    """name of one of the programs of server=; empty: its only one."""
    timeout_s: float = number(600.0, above=0)
    """seconds to wait for an answer of server=."""
    retries: int = number(5, least=0)
    """how often to come again where server= is busy or lost, with each image; it begins anew. 0: never."""
    ui: bool | int = number(False, least=0, most=0xFFFF)
    """a page on loopback, instead of a report: choose an image there and see what goes by. true: at any free port; or
    its port."""
    images: int | str = 32
    """held-out images, from the first; or a folder of pictures, or its URL, s3://BUCKET/PREFIX, or FILE.npy with an
    array of images, signals or a table's rows: all are classified."""
    results: str = ""
    """file that a folder's pictures are added to, .jsonl or .parquet; empty: results.jsonl in out=."""
    top_k: int = number(5, least=1)
    """logits of each picture in results=, the largest."""
    keys_gb: float = number(8.0, above=0)
    """of a CKKS program's keys, at most; a program that takes more is refused before any is made."""
    prepare: int = number(0, least=0)
    """inferences to keep prepared, all encrypted work of them, before their images and between; 0: none."""
    pause_s: float = number(0.0, least=0)
    """seconds between two images, in which nobody waits: prepare= fills its stock up again."""
    throttle: str = choice("", ("", *(name for name in LINKS if LINKS[name].counts)))
    """lan, wan44 or wan: messages are held up as on that link; empty: they are not."""

    def __post_init__(self) -> None:
        if self.out == f"{self.root}/infer":
            name = "pictures" if self.pictures else "client" if self.server else "infer"
            self.out = f"{self.root}/{name}{'_rehearsal' if self.rehearsal else ''}"
        super().__post_init__()
        self.program = program_folder(self.program)
        unprepared = self.mode == "interactive" or not self.prepare
        check(unprepared, "mode=ckks prepares nothing", f"prepare={self.prepare}", "leave it out")
        self._check_images()
        check(not (self.ui and self.throttle), "throttle is not for the page", self.throttle, "leave one of them away")
        alone = bool(self.server) or not self.prepared_folder
        check(alone, "prepared_folder is for the client of server=", self.prepared_folder, "name a server")
        check(bool(self.server) or not self.tls, "tls is for the client of server=", self.tls, "name a server")
        fits = bool(self.prepared_folder) or not self.prepared_claims
        check(fits, "prepared_claims is for prepared_folder=", self.prepared_claims, "name a prepared_folder= too")
        if self.server:
            parse_address(self.server)
            usual = self.reference == f"{self.root}/finetune"
            self.reference = "" if usual and not Path(self.reference).exists() else self.reference

    def _check_images(self) -> None:
        if not isinstance(self.images, str):
            check(self.images >= 1, "images must be at least 1", self.images, "use 32")
            remedy = "give images=DIR, or leave it out"
            check(not self.results, "results is for a folder of pictures", self.results, remedy)
            return
        remedy = "give images=32, images=DIR, images=FILE.npy or images=s3://BUCKET/PREFIX"
        check(bool(self.images), "images must be a number, or a folder of pictures", "nothing", remedy)
        check(not self.ui, "a folder of pictures is not for the page", self.images, "leave one of them away")
        known = not self.results or Path(self.results).suffix in (LINES, PARQUET)
        remedy = "use results=FILE.jsonl or results=FILE.parquet"
        check(known, "results must be JSON lines or Parquet", self.results, remedy)

    @property
    def pictures(self) -> bool:
        """Whether the images are pictures of a folder or a store."""
        return isinstance(self.images, str)

    @property
    def rehearsal(self) -> bool:
        """Whether nothing is encrypted."""
        return self.engine == "cleartext"


@dataclass
class ServeConfig(EngineConfig):
    """Settings of serve.py: a server of programs, for clients over gRPC."""

    programs: dict[str, str] = field(default_factory=dict[str, str])
    """several program folders by the names that clients give."""
    host: str = "127.0.0.1"
    """address to listen at; beyond loopback only with tls=."""
    port: int = number(5050, least=0, most=0xFFFF)
    """0: any that is free."""
    state: str = "${root}/service"
    """folder of keys, counts of images and the audit log, or redis://HOST:PORT/DB for replicas, whose audit logs stay
    in ${root}/service; replicas of one DB are one service. Empty: in memory."""
    sessions: int = number(4, least=1)
    """at once; further clients are told when to come again."""
    age_s: float = number(3600.0, above=0)
    """seconds after which a session ends."""
    grace_s: float = number(30.0, least=0)
    """seconds that images may take to end when the server stops."""
    connections: int = number(0, least=0)
    """of one address at once, for clients behind one proxy; 0: four for each session, and 16."""
    quota: Quota = field(default_factory=Quota)
    """what a client may ask for."""
    quotas: dict[str, Quota] = field(default_factory=dict[str, Quota])
    """the same for clients with a quota of their own, by name."""
    keys: StoreLimits = field(default_factory=StoreLimits)
    """how much room for clients' keys (a CKKS program's are gigabytes), how long they are kept, and where."""
    prepared_gb: float = number(4.0, above=0)
    """of prepared work of all clients, at most."""
    prepared_workers: str = ""
    """Ray cluster whose actors prepare, ray://HOST:PORT; empty: this process does."""
    prepared_actors: int = number(0, least=0)
    """of prepared_workers=, each on up to four cores; 0: as many as its machines have room for."""
    metrics: str = ""
    """HOST:PORT of Prometheus metrics, and at the next port health checks, plain, for probes without TLS such as those
    of Kubernetes; PORT 0: any two that are free; empty: neither."""
    log: str = choice("text", FORMS)
    """form of the log's lines: text or json."""

    def __post_init__(self) -> None:
        check_fields(self)
        self.program = program_folder(self.program)
        self.programs = {name: program_folder(path) for name, path in self.programs.items()}
        alone = bool(self.keys.folder) and not is_url(self.state)
        check(not alone, "keys.folder is for state=redis://", self.keys.folder, "leave it out: keys are in state=")
        if self.metrics:
            _, port = parse_address(self.metrics, "metrics=")
            check(port < 0xFFFF, "metrics must leave a port for health checks", self.metrics, "use 127.0.0.1:9090")
        plain = not self.tls and not is_loopback(self.host)
        check(not plain, "host beyond loopback needs tls=", self.host, "use tls=trial, or a folder of certificates")

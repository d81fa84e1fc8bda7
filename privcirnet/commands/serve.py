"""Serve a program to clients on TCP. `privcirnet serve --help`."""

import signal
import time
from pathlib import Path

import numpy as np

from privcirnet.artifact import read_program, read_signature
from privcirnet.config import ServeConfig
from privcirnet.console import as_started, console, inference_bar, progress_bar, show
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.measure.memory import peak_bytes
from privcirnet.he.program.operations import Input
from privcirnet.he.program.signature import pinned
from privcirnet.he.protocol import message_sizes
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.transport.server import ConnectionLimits, TcpServer
from privcirnet.he.ring import threads
from privcirnet.pipeline.infer import answers
from privcirnet.settings import script


@script(ServeConfig)
def main(config: ServeConfig) -> None:
    """Encode the weights, listen, and serve until interrupted.

    Args:
        config: of the command line.
    """
    program, spectra = read_program(Path(config.program), pinned(config.model_key))
    _, signature = read_signature(Path(config.program))
    threads.use(config.threads)
    cache = WeightCache.of(config.weights_gb, config.weights_folder)
    with progress_bar("Encoding weights (layers)", len(program.linear_nodes)) as advance:
        server = Server(program, config.engine, spectra, progress=advance, cache=cache, signature=signature)
    if config.rehearsal:
        _rehearse(server, config.engine)
    tcp_server = TcpServer(
        server, (config.host, config.port), ConnectionLimits(config.connections, config.timeout_s), log=_log
    )
    rounds = message_sizes.rounds(program)
    source, most = program.nodes[0], message_sizes.largest(program)
    assert isinstance(source.operation, Input)
    host, port = tcp_server.address
    show(
        f"serve: {config.program}, engine {config.engine}"
        + (", NOTHING IS ENCRYPTED" if config.engine == "cleartext" else ""),
        {
            "address": f"{host}:{port}, {config.connections} clients at once; Ctrl-C ends it",
            "program": f"{len(program.linear_nodes)} layers with weights, {rounds} rounds an image, "
            f"n = {program.parameters.ring_degree}, log q = {program.parameters.log_q}",
            "memory": f"{peak_bytes() / 1e6:.0f} MB so far, {cache.taken / 1e6:.0f} MB of them encoded weights; "
            f"{message_sizes.keys_in_memory(program) / 1e6:.0f} MB of keys for each client",
            "a client": f"images of {' x '.join(map(str, source.shape))} integers in "
            f"[{source.operation.low}, {source.operation.high}]; sends {most.keys / 1e6:.1f} MB of keys once",
            "command": as_started(f"python infer.py server={f'[{host}]' if ':' in host else host}:{port}"),
        },
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        tcp_server.run()
    except KeyboardInterrupt:
        _log("stopped")


def _rehearse(server: Server, engine: str) -> None:
    """Run one image through both parties here, so that no client waits for what is compiled on first use."""
    source = server.program.nodes[0]
    assert isinstance(source.operation, Input)
    client = Client(server.greeting(), engine)
    session = server.session(client.keys())
    with inference_bar(server.program, 1) as progress:
        list(answers(client, session, [np.full(source.shape, source.operation.high)], progress))


def _log(line: str) -> None:
    """Print one line with the time; markup in what a client sent stays text."""
    console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, soft_wrap=True)

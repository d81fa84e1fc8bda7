"""Encrypted inference of many images with everything checked and measured: what infer.py reports."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.he.encodings.integer import Values
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.measure.memory import peak_bytes
from privcirnet.he.planning.cost import Link, Profile, client_aided_cost, linear_cost, product_cost, square_cost
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import ClientAided, Linear, Product
from privcirnet.he.program.program import Node, Program
from privcirnet.he.protocol import message_sizes
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.session import Answering
from privcirnet.he.protocol.transport.client import TcpClient
from privcirnet.he.ring import threads
from privcirnet.he.ring.modular import Residues
from privcirnet.pipeline import audit
from privcirnet.pipeline.infer import Inference, StepProgress, answers, check_some, name_of, percent, predictions, quiet
from privcirnet.pipeline.server_process import ServerReport, ServerTask, second_process

UNIT = "1 unit in the last place of each truncation"


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        program: with weights.
        integer: logits of the integer interpreter, (N, classes), in units of the output's step.
        wrong: for each image the nodes whose decrypted value does not follow from their inputs (empty: all right).
        inference: the client's side.
        server: what the server measured.
        peak: most memory of the client's process and of the server's, bytes; None where they are one.
    """

    program: Program
    integer: Values
    wrong: list[list[str]]
    inference: Inference
    server: Meter
    peak: tuple[int, int] | None = None

    @property
    def encrypted(self) -> Values:
        """Logits of the protocol, as ``integer``."""
        return self.inference.logits

    def summary(self, clear: np.ndarray, labels: np.ndarray, profile: Profile, link: Link) -> dict[str, Any]:
        """The keys of infer's summary.json that do not depend on where things are.

        Args:
            clear: class predicted by the float network, (N,).
            labels: (N,).
            profile: for predicted times.
            link: likewise.
        """
        integer, encrypted = self.integer.argmax(axis=1), self.encrypted.argmax(axis=1)
        count, step = len(labels), 2.0**self.program.output.log_step
        columns: dict[str, Values | None] = {"label": labels, "float": clear, "integer": integer}
        logits = {"logits": step * self.encrypted, "logits_integer": step * self.integer}
        return {
            "images": count,
            "top1_float": percent(clear == labels),
            "top1_integer": percent(integer == labels),
            "top1_encrypted": percent(encrypted == labels),
            "logits_equal": sum(not nodes for nodes in self.wrong),
            "argmax_equal": int((integer == encrypted).sum()),
            "unit": UNIT,
            "wrong_nodes": sorted({name for nodes in self.wrong for name in nodes}),
            "logit_max_difference": step * float(np.abs(self.integer - self.encrypted).max()),
            "logit_range": step * float(np.abs(self.integer).max()),
            **self.inference.costs(),
            "seconds_server": sum(self.server.seconds.values()) / count,
            "memory": None if self.peak is None else dict(zip(("client", "server"), self.peak, strict=True)),
            "layers": [
                self._layer(i, n, profile, link, count)
                for i, n in enumerate(self.program.nodes)
                if message_sizes.ciphertexts(n, self.program.parameters) is not None
            ],
            "predictions": predictions({**columns, "encrypted": encrypted}, logits),
        }

    def _layer(self, position: int, node: Node, profile: Profile, link: Link, images: int) -> dict[str, Any]:
        traffic = next(t for t in self.inference.answers[-1].traffic if t.position == position)
        counts, (up, down) = self.server.counts[node.name], message_sizes.exchanged(node, self.program.parameters)
        seconds = self.inference.client.meter.seconds[node.name] + self.server.seconds[node.name]
        match node.operation:
            case Linear(layer):
                cost, kind, encoding = linear_cost(layer, profile, link), layer.shape.kind, layer.encoding
                b, planned = layer.block_size, (layer.rotations, layer.pmults)
            case Product(left, right):
                cost, kind, encoding = product_cost(left, right, profile, link), "product", left.encoding
                b, planned = 1, (left.rotations + right.rotations, left.pmults + right.pmults)
            case ClientAided(function):
                values = int(np.prod(node.shape))
                cost, kind, encoding, b, planned = client_aided_cost(values, link), function, "in clear", 1, (0, 0)
            case _:
                values = int(np.prod(node.shape))
                cost, kind, encoding = square_cost(values, profile, link), "square", "slots"
                b, planned = 1, (0, up)
        return {
            "name": name_of(node),
            "kind": kind,
            "encoding": encoding,
            "block_size": b,
            "rotations": counts["rotate"] // images,
            "pmults": counts["pmult"] // images,
            "rotations_planned": planned[0],
            "pmults_planned": planned[1],
            "rounds": 1,
            "ciphertexts_up": up,
            "ciphertexts_down": down,
            "bytes_up": traffic.up,
            "bytes_down": traffic.down,
            "seconds_predicted": cost.total,
            "seconds": seconds / images,
        }


def evaluate(
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str = "kernel",
    progress: StepProgress = quiet,
    cache: WeightCache | None = None,
) -> Evaluation:
    """Run the protocol on every image, both parties in this process, and check every step of it.

    Args:
        program: with weights.
        spectra: its weight spectra.
        images: integers, (N, C, H, W).
        engine: "kernel", "tenseal" or "cleartext".
        progress: called after each exchange.
        cache: for the server's encoded weights.

    Raises:
        RuleError: no image, or one that does not fit the program.
    """
    check_some(images)
    started = time.perf_counter()
    server = Server(program, engine, spectra, cache=cache)
    client = Client(server.greeting(), engine)
    keys = client.keys()
    session = server.session(keys)
    setup = time.perf_counter() - started

    def seen() -> ServerReport:
        return ServerReport(session.shares, session.meter, peak_bytes())

    return _audited(program, _Parties(client, session, seen, setup, len(keys)), images, progress)


def evaluate_apart(
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str = "kernel",
    progress: StepProgress = quiet,
    cache: WeightCache | None = None,
) -> Evaluation:
    """The same with the server in a process of its own, and TCP on loopback in between."""
    check_some(images)
    started, cache = time.perf_counter(), cache or WeightCache()
    task = ServerTask(program, spectra, engine, cache.limit, cache.folder, threads.count())
    with second_process(task) as witness, TcpClient(witness.address, engine) as remote:
        setup = time.perf_counter() - started
        parties = _Parties(remote.client, remote, witness.seen, setup, remote.bytes_keys, apart=True)
        return _audited(program, parties, images, progress)


@dataclass(frozen=True)
class _Parties:
    """Both parties as an audit needs them: the client, who answers it, and what the server's side tells of an image."""

    client: Client
    server: Answering
    seen: Callable[[], ServerReport]
    seconds_setup: float
    bytes_keys: int
    apart: bool = False


def _audited(program: Program, parties: _Parties, images: Values, progress: StepProgress) -> Evaluation:
    integer: list[Values] = []
    wrong: list[list[str]] = []
    found, seen = [], None
    for image, answer in zip(images, answers(parties.client, parties.server, images, progress), strict=True):
        seen = parties.seen()
        values = audit.reconstruct(program, parties.client.shares, seen.shares)
        ends = {program.nodes[0].name: image, program.output.name: answer.logits}
        foreign = [name for name, value in ends.items() if not np.array_equal(values[name].reshape(value.shape), value)]
        wrong.append(audit.wrong_nodes(program, values) + foreign)
        integer.append(interpret(program, image)[program.output.name].reshape(-1))
        found.append(answer)
    assert seen is not None
    inference = Inference(program, found, parties.client, parties.seconds_setup, parties.bytes_keys)
    peak = (peak_bytes(), seen.peak) if parties.apart else None
    return Evaluation(program, np.stack(integer), wrong, inference, seen.meter, peak)

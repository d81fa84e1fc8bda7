"""Encrypted inference of many images with everything checked and measured: what infer.py reports."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcirnet.he.circuits.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.profile import Link, Profile
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline.materials import MemoryStore
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads
from privcirnet.he.system.memory import peak_bytes
from privcirnet.runs import audit
from privcirnet.runs.answers import StepProgress, answers, name_of, no_progress
from privcirnet.runs.infer import Inference, check_some, percent, predictions
from privcirnet.runs.laps import PartyLaps
from privcirnet.runs.parties import Parties
from privcirnet.runs.preparation import Ahead
from privcirnet.runs.server_process import ServerReport, ServerTask, start_server
from privcirnet.runs.throttle import throttled
from privcirnet.service.client import ServiceClient

UNIT = "1 unit in the last place of each truncation"


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        integer: logits of the integer interpreter, (N, classes), in units of the output's step.
        wrong: for each image the nodes whose value does not follow from their inputs'; empty if all are right.
        laps: the server's seconds for each image.
        peak: most memory of the client's process and of the server's, bytes; None where they are one.
    """

    program: Program
    integer: Values
    wrong: list[list[str]]
    inference: Inference
    server: Meter
    laps: PartyLaps
    peak: tuple[int, int] | None = None
    preparation: Meter = field(default_factory=Meter)

    @property
    def encrypted(self) -> Values:
        """Logits of the protocol, as ``integer``."""
        return self.inference.logits

    def summary(self, clear: np.ndarray, labels: np.ndarray, profile: Profile | None, link: Link) -> dict[str, Any]:
        """The keys of infer's summary.json that do not depend on where things are.

        Args:
            clear: class predicted by the float network, (N,).
            labels: (N,).
            profile: for predicted times; None for none.

        Returns:
            plain data for JSON.
        """
        integer, encrypted = self.integer.argmax(axis=1), self.inference.classes
        count, step = len(labels), 2.0**self.program.output.log_step
        columns: dict[str, Values | None] = {"label": labels, "float": clear, "integer": integer}
        logits = {"logits": step * self.encrypted, "logits_integer": step * self.integer}
        exchanges = exchanges_of(self.program)
        profile = profile and replace(profile, plain_bits=self.program.parameters.plain_bits)
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
            "seconds_server": self.laps.images.total,
            "memory": None if self.peak is None else dict(zip(("client", "server"), self.peak, strict=True)),
            "layers": [
                self._layer(
                    position,
                    node,
                    exchanges[node.name].plan,
                    operation_cost(node.operation, node.shape, profile, link).total if profile else None,
                )
                for position, node in enumerate(self.program.nodes)
                if node.name in exchanges
            ],
            "predictions": predictions({**columns, "encrypted": encrypted}, logits),
        }

    def _layer(self, position: int, node: Node, plan: RoundPlan, predicted: float | None) -> dict[str, Any]:
        inference = self.inference
        now, ahead = inference.exchanged(position)
        images = sum(not answer.prepared for answer in inference.answers)
        if images:
            counts = self.server.counts[node.name]
        else:
            counts, images = self.preparation.counts[node.name], inference.ahead.images if inference.ahead else 1
        return {
            "name": name_of(node),
            "kind": plan.kind,
            "encoding": plan.encoding,
            "block_size": plan.block_size,
            "rotations": -(-counts["rotate"] // images),
            "pmults": -(-counts["pmult"] // images),
            "rotations_planned": plan.rotations,
            "pmults_planned": plan.pmults,
            "rounds": len(now),
            "ciphertexts_up": plan.ciphertexts_up,
            "ciphertexts_down": plan.ciphertexts_down,
            "bytes_up": sum(t.up for t in now + ahead),
            "bytes_down": sum(t.down for t in now + ahead),
            "seconds_predicted": predicted,
            "seconds": inference.laps.of(node.name) + self.laps.of(node.name),
        }


def evaluate(  # noqa: PLR0913
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str = "kernel",
    progress: StepProgress = no_progress,
    cache: WeightCache | None = None,
    *,
    prepare: int = 0,
    pause_s: float = 0.0,
    throttle: str = "",
) -> Evaluation:
    """Run the protocol on every image, both parties in this process, and check every step of it.

    Args:
        spectra: its weight spectra by node.
        images: integers, (N, C, H, W).
        engine: "kernel", "tenseal" or "cleartext".
        progress: called after each round.
        prepare: inferences to keep prepared; 0: none.
        pause_s: seconds between two images, in which inferences are prepared.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses the program.
    """
    check_some(images)
    started = time.perf_counter()
    server = Server(program, engine, spectra, cache=cache)
    store = MemoryStore()
    client = Client(server.greeting(), engine, store=store)
    keys = client.keys()
    session = server.session(keys)
    setup = time.perf_counter() - started

    def report() -> ServerReport:
        return ServerReport(session.shares, session.meter, peak_bytes(), session.preparation)

    ahead = Ahead(prepare, store, keep=False, again=lambda: None, pause_s=pause_s)
    parties = Parties(client, throttled(session, throttle), report, setup, len(keys), throttle)
    return _audited(program, parties, ahead, images, progress)


def evaluate_apart(  # noqa: PLR0913
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str = "kernel",
    progress: StepProgress = no_progress,
    cache: WeightCache | None = None,
    *,
    prepare: int = 0,
    pause_s: float = 0.0,
    throttle: str = "",
) -> Evaluation:
    """Run :func:`evaluate` with the server in a process of its own, and gRPC on loopback between the parties.

    Args:
        spectra: its weight spectra by node.
        images: integers, (N, C, H, W).
        engine: "kernel", "tenseal" or "cleartext".
        progress: called after each round.
        cache: its limit and folder are those of the server's encoded weights.
        prepare: inferences to keep prepared; 0: none.
        pause_s: seconds between two images, in which inferences are prepared.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results, with both processes' memory.

    Raises:
        RuleError: as :func:`evaluate`, or the server's process ended.
    """
    check_some(images)
    started, cache = time.perf_counter(), cache or WeightCache()
    task = ServerTask(program, spectra, engine, cache.limit, cache.folder, threads.count())
    with start_server(task) as process, ServiceClient(process.address, engine) as remote:
        setup = time.perf_counter() - started
        ahead = Ahead(prepare, remote.store, keep=False, again=remote.reopen, pause_s=pause_s)
        handler, keys = throttled(remote, throttle), remote.bytes_keys
        parties = Parties(remote.client, handler, process.report, setup, keys, throttle, apart=True)
        return _audited(program, parties, ahead, images, progress)


def _audited(
    program: Program, parties: Parties[Client, ServerReport], ahead: Ahead, images: Values, progress: StepProgress
) -> Evaluation:
    integer: list[Values] = []
    wrong: list[list[str]] = []
    found, report = [], None
    client, of_client, of_server = parties.client, PartyLaps(), PartyLaps()
    answered = answers(client, parties.server, images, progress, ahead)
    for image, answer in zip(images, answered, strict=True):
        report = parties.report()
        of_client.add(client.meter, client.preparation, ahead.images)
        of_server.add(report.meter, report.preparation, ahead.images)
        values = audit.reconstruct(program, client.shares, report.shares)
        ends = {program.nodes[0].name: image, program.output.name: answer.logits}
        foreign = [name for name, value in ends.items() if not np.array_equal(values[name].reshape(value.shape), value)]
        wrong.append(audit.wrong_nodes(program, values) + foreign)
        integer.append(interpret(program, image)[program.output.name].reshape(-1))
        found.append(answer)
    assert report is not None
    facts = parties.seconds_setup, parties.bytes_keys, of_client, ahead, parties.throttle
    inference = Inference(program, found, client, *facts)
    peak = (peak_bytes(), report.peak) if parties.apart else None
    return Evaluation(program, np.stack(integer), wrong, inference, report.meter, of_server, peak, report.preparation)

"""Networks on bootstrapped CKKS, both parties in this process: precision of results, cost of layers."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcirnet.artifact.summaries import CircuitSummary, CkksAudit, LayerRow
from privcirnet.errors import RuleError
from privcirnet.he.ckks.evaluator import Stopwatch
from privcirnet.he.ckks.program import CkksProgram, Rehearsed, part_of, predicted, row_of
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import ImpossibleResultError
from privcirnet.he.protocol.interface import Meter
from privcirnet.he.protocol.one_message.ckks import ENGINES, CkksDescription, CkksInferenceClient, CkksInferenceServer
from privcirnet.he.protocol.one_message.session import WORK, OneMessageClient, OneMessageServer
from privcirnet.he.protocol.parties.session import Traffic
from privcirnet.he.system.process import peak_bytes
from privcirnet.runs.answers import Answer, InferenceStep, StepProgress
from privcirnet.runs.evaluation import Evaluation
from privcirnet.runs.parties import Parties, RunOptions, ServerReport, ServerTask, open_parties
from privcirnet.runs.progress import ProgressBar

BEYOND = "bounds"
"""Name of the fault of an image with a value beyond the examples' bounds; its answer may be wrong."""
_MOST_BITS = 64.0


@dataclass
class Ckks:
    """A CKKS program.

    Attributes:
        program: program; None where the client is alone.
        rehearsed: rehearsed circuit, once parties are there.
    """

    program: CkksProgram | None = None
    rehearsed: Rehearsed | None = None

    @property
    def step(self) -> float:
        return 1.0  # results are real

    @property
    def whole(self) -> CkksProgram:
        """The program, with its weights."""
        assert self.program is not None
        return self.program

    @property
    def circuit(self) -> Rehearsed:
        """The rehearsed circuit, with its costs."""
        assert self.rehearsed is not None
        return self.rehearsed

    def check(self, images: Sequence[Values] | Values) -> None:
        self.whole.real(images)

    def task(self, how: RunOptions) -> ServerTask:
        """Return a server's task.

        Raises:
            RuleError: there is no such engine, or weights are to be kept in a folder.
        """
        if how.engine not in ENGINES:
            rule, remedy = "a CKKS program runs with engine=kernel or cleartext", "use engine=kernel"
            raise RuleError(rule, got=how.engine, remedy=remedy)
        if how.weights_folder:
            rule, remedy = "a CKKS program's encoded weights are kept in memory", "leave weights_folder out"
            raise RuleError(rule, got=f"weights_folder={how.weights_folder}", remedy=remedy)
        return replace(how, weights_gb=_weights_gb(how)).task(self.whole, OneMessageServer, OneMessageClient)

    @contextmanager
    def open(self, how: RunOptions, bar: ProgressBar) -> Iterator[Parties]:
        """Yield both parties, or the twin in clear. The simulator first reports what cannot run.

        Raises:
            RuleError: the program cannot run, or keys or memory are too small.
        """
        started, program, task = time.perf_counter(), self.whole, self.task(how)
        with bar("Simulating the circuit", 0):
            self.rehearsed = rehearsed = program.rehearsed(_weights_gb(how))
        if how.served:
            if how.engine == "kernel":
                rehearsed.check(how.keys_gb, 0, 0)  # the server looks at its memory itself
            with open_parties(task, replace(how, warm=False), bar) as both:
                yield both
            return
        with bar("Encoding weights", len(rehearsed.counting.maps)) as advance:
            options = {"encoding": advance, "rehearsed": rehearsed, "keys_gb": how.keys_gb}
            server = CkksInferenceServer(program, how.engine, hides=False, **options)
        with closing(CkksInferenceClient(server.description, how.engine)) as client:
            party = _Party(program, server, client)
            party.exchange_keys(bar)
            yield party.ready(how, started)

    def clear(self, image: np.ndarray) -> np.ndarray:
        """Return the network's logits in double precision."""
        with np.errstate(over="ignore", invalid="ignore"):  # of images beyond the bounds
            return self.whole.sums(self.whole.real(image[None]))[0]

    def wrong(self, client: Any, request: np.ndarray, answers: Sequence[Answer], seen: Any) -> list[list[str]]:
        """Return :data:`BEYOND` for an image that is beyond the bounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            return [[] if self.whole.sums.within(self.whole.real(request[None])) else [BEYOND]]

    def audit(self, of: Evaluation, compared: Mapping[str, Any]) -> CkksAudit:
        """Return the precision of results against those in clear, and the cost of the circuit."""
        bits, circuit = bits_of(of), circuit_summary(self.circuit, self.circuit.circuit.weight_bytes)
        return CkksAudit(
            logits_bits=min(bits),
            logits_bits_images=bits,
            beyond=[i for i, names in enumerate(of.wrong) if names],
            circuit=circuit if of.parties.bytes_keys else replace(circuit, bytes_keys_server=0),
            processor_seconds_images=None if of.parties.how.apart else [answer.processor for answer in of.answers],
            **compared,
        )

    def layers(self, of: Evaluation) -> list[LayerRow]:
        """Return the cost of each layer for one image; a bootstrapping is one row.

        Levels and precision are those behind a layer; for a sum that is bootstrapped, behind its square. A server that
        is reached through a service does not tell layers apart.
        """
        if self.program is None:
            return []
        circuit, counting = self.circuit.circuit, self.circuit.counting
        network, expected, laps = circuit.network, predicted(circuit, counting), of.audited.laps.images
        kinds = dict.fromkeys([t.layer.name for node in network.nodes for t in node.terms if t.layer], "convolution")
        kinds |= dict.fromkeys([node.name for node in network.nodes], "square") | {network.head: "linear"}
        counts, seconds = dict[str, Counter[str]](), dict[str, float]()
        for layer, operations in counting.counts.items():
            counts[row_of(layer)] = counts.get(row_of(layer), Counter()) + operations
            seconds[row_of(layer)] = seconds.get(row_of(layer), 0.0) + laps.of(layer)
        rows: dict[str, LayerRow] = {}
        for trace in counting.course[:-1]:  # the last is the reply
            name = row_of(trace.layer)
            kind = "bootstrapping" if part_of(trace.layer) else kinds.get(trace.layer, "image")
            operations = counts.get(name, Counter[str]())
            rows.pop(name, None)  # what is bootstrapped comes again behind its bootstrapping, which is its place
            rows[name] = LayerRow(
                name=name,
                kind=kind,
                encoding="slots",
                rotations=operations["rotate"],
                pmults=operations["pmult"],
                squares=operations["multiply"],
                seconds=None if of.parties.how.served else seconds.get(name, 0.0),
                seconds_predicted=expected.get(name),
                level=trace.level,
                precision_bits=trace.precision_bits,
            )
        return list(rows.values())


def circuit_summary(rehearsed: Rehearsed, weights: int) -> CircuitSummary:
    """Return the cost of a circuit; ``weights``: bytes of encoded weights."""
    counting, seconds = rehearsed.counting, {"bootstrapping": 0.0, "layers": 0.0}
    for name, layer_seconds in predicted(rehearsed.circuit, counting).items():
        seconds["bootstrapping" if name.endswith(" bootstrapping") else "layers"] += layer_seconds
    return CircuitSummary(
        levels=rehearsed.circuit.bootstrapping.parameters.levels,
        bootstrappings=rehearsed.bootstrappings,
        precision_bits=rehearsed.reply.precision_bits,
        operations={name: count for name, count in counting.total.items() if name != "raised"},
        rotation_keys=len(counting.keys),
        bytes_keys_server=rehearsed.key_bytes,
        bytes_weights=weights,
        processor_seconds_predicted=seconds,
    )


def _weights_gb(how: RunOptions) -> float:
    return 4.0 if how.weights_gb is None else how.weights_gb


def bits_of(of: Evaluation) -> list[float]:
    """Return the precision in bits of each image's logits: they are right to 2^-bits of the largest one."""
    clear = of.audited.clear
    with np.errstate(invalid="ignore"):  # of images beyond the bounds
        errors = np.abs(of.logits - clear).max(axis=1) / np.abs(clear).max(axis=1)
    bits = -np.log2(np.maximum(errors, 2.0**-_MOST_BITS))
    return np.clip(np.nan_to_num(bits, nan=-_MOST_BITS), -_MOST_BITS, _MOST_BITS).tolist()


@dataclass
class _LayerProgress:
    """A reporter of an image's layers, which also measures them.

    Attributes:
        places: places of the layers, as fractions of an image.
    """

    image: int
    places: Mapping[str, float]
    progress: StepProgress
    done: float = 0.0
    watch: Stopwatch = field(default_factory=Stopwatch)

    def __call__(self, layer: str) -> None:
        """Begin a layer."""
        self.watch(layer)
        self.done = max(self.done, self.places.get(layer, 0.0))
        self.progress(InferenceStep(self.image, layer, 0, self.image + self.done))


@dataclass
class _Party:
    """A client and the server that has its keys, or the twin of both in clear, which hides nothing.

    Nothing is hidden from the client: it measures the circuit's own error.

    Attributes:
        bytes_keys: bytes of the keys on the wire.
    """

    program: CkksProgram
    server: CkksInferenceServer
    client: CkksInferenceClient
    of_client: Meter = field(default_factory=Meter)
    of_server: Meter = field(default_factory=Meter)
    bytes_keys: int = 0
    keys: Any = None

    @property
    def known(self) -> CkksDescription:
        """The public description of the program."""
        return self.server.description

    def exchange_keys(self, bar: ProgressBar) -> None:
        """Make the keys and load them one by one, so that only one is in transit at a time."""
        with bar("Making keys", len(self.server.description.names) + 1) as advance:

            def counted() -> Iterator[bytes]:
                for part in self.client.key_parts():
                    self.bytes_keys += len(part)
                    yield part
                    advance(f"{self.bytes_keys / 1e9:.2f} GB sent")

            self.keys = self.server.load_keys(counted())

    def ready(self, how: RunOptions, started: float) -> Parties:
        """Return the parties, whose setup began at ``started``."""

        def report() -> ServerReport:
            return ServerReport(None, (self.of_server,), peak_bytes())

        setup = time.perf_counter() - started
        return Parties(self, self, self.requests, (self.of_client,), report, setup, self.bytes_keys, how=how)

    def requests(
        self, images: Sequence[Values] | Values, progress: StepProgress
    ) -> Iterator[tuple[np.ndarray, list[Answer]]]:
        """Yield each image and its answer."""
        names = dict.fromkeys(trace.layer for trace in self.server.rehearsed.counting.course)
        places = {name: place / len(names) for place, name in enumerate(names)}
        for number, image in enumerate(images):
            layer_progress, start, busy, refused = (
                _LayerProgress(number, places, progress),
                time.perf_counter(),
                time.process_time(),
                None,
            )
            with self.of_client.time(WORK):
                request = self.client.request(image)
            reply = self.server.answer(request, self.keys, begins=layer_progress)
            layer_progress.watch("")
            try:
                with self.of_client.time(WORK):
                    logits = self.client.results(reply)
            except ImpossibleResultError as error:
                refused, logits = error, error.values
            seconds, busy = time.perf_counter() - start, time.process_time() - busy
            for layer, lap in layer_progress.watch.seconds.items():
                self.of_server.seconds[layer] += lap
            up, down = (sum(map(len, parts)) for parts in (*request, *reply))
            progress(InferenceStep(number, "answer", up + down, number + 1.0))
            traffic = [Traffic(0, up, down, seconds)]
            yield image, [Answer(logits, traffic, seconds, refused, processor=busy)]

"""Inference of many images on bootstrapped CKKS, checked and measured: what infer.py does with a CKKS program."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from privcirnet.he.circuits.ckks import hoisting
from privcirnet.he.circuits.ckks.cleartext import Cleartext
from privcirnet.he.circuits.ckks.machine import Encrypted
from privcirnet.he.circuits.ckks.stopwatch import Stopwatch
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.ckks.costs import memory_bytes
from privcirnet.he.planning.ckks.program import CkksProgram, Rehearsed
from privcirnet.he.schemes.ckks.client import CkksClient
from privcirnet.he.schemes.ckks.embedding import Reals
from privcirnet.he.schemes.ckks.server import CkksServer
from privcirnet.he.system.memory import machine_bytes, peak_bytes
from privcirnet.runs.ckks_results import CkksEvaluation
from privcirnet.runs.laps import typical
from privcirnet.runs.progress import Advance, Bar, silent


class Answer(NamedTuple):
    """The result of one image.

    Attributes:
        logits: real, shape (classes,).
        sent: bytes of the request and of the reply.
        seconds: in all, of the client and of the server.
        processor: processor seconds of all threads meanwhile.
        layers: the server's seconds by layer.
    """

    logits: Reals
    sent: tuple[int, int]
    seconds: tuple[float, float]
    processor: float
    layers: dict[str, float]


def evaluate_ckks(
    program: CkksProgram,
    images: Values | Sequence[Values],
    engine: str = "kernel",
    bar: Bar = silent,
    *,
    weights_gb: float = 4.0,
    keys_gb: float = 8.0,
) -> CkksEvaluation:
    """Run client and server in this process on every image, and compare with the network in clear.

    What cannot run is said before anything is encrypted: the simulator runs the circuit first.

    Args:
        images: integers as the data set has them, (N, C, H, W).
        engine: "kernel", or "cleartext": the twin in clear, which hides nothing.
        weights_gb: of encoded weights that are kept in memory; others are encoded again for every image.
        keys_gb: of keys, at most.

    Returns:
        the results.

    Raises:
        RuleError: images do not fit the program, it cannot run, or keys or memory are too small.
    """
    real, started = program.real(images), time.perf_counter()
    with bar("Simulating the circuit", 0):
        rehearsed = program.rehearsed(weights_gb)
    if engine == "cleartext":
        answers = _InClear(rehearsed).answers(real, bar)
        return _evaluation(program, rehearsed, real, answers, time.perf_counter() - started, 0)
    rehearsed.check(keys_gb, machine_bytes(), memory_bytes(rehearsed.circuit, rehearsed.counting))
    parties = _Parties(rehearsed)
    try:
        parties.prepare(bar)
        setup = time.perf_counter() - started
        return _evaluation(program, rehearsed, real, parties.answers(real, bar), setup, parties.bytes_keys)
    finally:
        parties.client.close()


def _evaluation(
    program: CkksProgram, rehearsed: Rehearsed, real: Reals, answers: Iterator[Answer], setup: float, keys: int
) -> CkksEvaluation:
    found, network = [*answers], program.sums
    with np.errstate(over="ignore", invalid="ignore"):  # of images beyond the bounds
        clear = [network(image[None])[0] for image in real]
        beyond = [i for i, image in enumerate(real) if not network.within(image[None])]
    names = {name for answer in found for name in answer.layers}
    return CkksEvaluation(
        rehearsed=rehearsed,
        logits=np.stack([answer.logits for answer in found]),
        clear=np.stack(clear),
        beyond=beyond,
        seconds=[answer.seconds[0] + answer.seconds[1] for answer in found],
        seconds_server=typical([answer.seconds[1] for answer in found]),
        processor=[answer.processor for answer in found],
        layers={name: typical([answer.layers.get(name, 0.0) for answer in found]) for name in names},
        sent=found[-1].sent,
        seconds_setup=setup,
        bytes_keys=keys,
        peak=peak_bytes(),
    )


class _Progress:
    """Moves a bar with the layers of each image."""

    def __init__(self, rehearsed: Rehearsed, images: int, advance: Advance) -> None:
        names = dict.fromkeys(trace.layer for trace in rehearsed.counting.course)
        self._places = {name: place / len(names) for place, name in enumerate(names)}
        self._images, self._advance, self._done, self._image = images, advance, 0.0, 0

    def image(self, number: int) -> None:
        """Begin an image; what was before is done."""
        self._image, self._done = number, float(number)
        self._advance(f"image {min(number + 1, self._images)} of {self._images}", to=self._done)

    def __call__(self, layer: str) -> None:
        """Begin a layer."""
        self._done = max(self._done, self._image + self._places.get(layer, 0.0))
        self._advance(f"image {self._image + 1} of {self._images}, {layer}", to=self._done)


@dataclass
class _Parties:
    """A client and the server that has its keys."""

    rehearsed: Rehearsed
    bytes_keys: int = 0
    keys: dict[int, Any] = field(default_factory=dict[int, Any])

    def __post_init__(self) -> None:
        parameters = self.rehearsed.circuit.refresh.parameters
        self.client, self.server = CkksClient(parameters), CkksServer(parameters)

    def prepare(self, bar: Bar) -> None:
        """Make the keys, one by one, so that no more than one travels at a time, and encode the weights."""
        names, maps = self.rehearsed.counting.keys, self.rehearsed.counting.maps
        with bar("Making keys", len(names)) as advance:
            for name, level in names.items():
                message = self.client.evaluation_keys({name: level})
                self.keys.update(self.server.load_keys(message, {name: level}))
                self.bytes_keys += len(message)
                advance(f"{self.bytes_keys / 1e9:.2f} GB sent")
        with bar("Encoding weights", len(maps)) as advance:
            for met in maps:
                if linear := met.linear():
                    hoisting.encode(self.server.at(met.level).context, linear, met.level)
                advance(met.layer)

    def answers(self, real: Reals, bar: Bar) -> Iterator[Answer]:
        """Yield the answer to each image."""
        with bar("Encrypted inference", len(real)) as advance:
            progress = _Progress(self.rehearsed, len(real), advance)
            for number, image in enumerate(real):
                progress.image(number)
                yield self._answer(image, progress)
            progress.image(len(real))

    def _answer(self, image: Reals, progress: _Progress) -> Answer:
        circuit, watch = self.rehearsed.circuit, Stopwatch()
        level, start, processor = circuit.schedule.image, time.perf_counter(), time.process_time()
        request = [self.client.encrypt(slots, level) for slots in circuit.encode(image)]
        encrypted = time.perf_counter()

        def begins(layer: str) -> None:
            watch(layer)
            progress(layer)

        received = [self.server.receive(message, level) for message in request]
        reply = self.server.reply(circuit(Encrypted(self.server, self.keys, begins), received))
        watch("")
        replied = time.perf_counter()
        logits = circuit.logits(self.client.decrypt(reply))
        client = encrypted - start + time.perf_counter() - replied
        used = time.process_time() - processor
        sent = sum(map(len, request)), len(reply)
        return Answer(logits, sent, (client, replied - encrypted), used, dict(watch.seconds))


@dataclass
class _InClear:
    """The twin in clear."""

    rehearsed: Rehearsed

    def answers(self, real: Reals, bar: Bar) -> Iterator[Answer]:
        """Yield the answer to each image."""
        circuit = self.rehearsed.circuit
        with bar("Inference in clear", len(real)) as advance:
            progress = _Progress(self.rehearsed, len(real), advance)
            for number, image in enumerate(real):
                progress.image(number)
                watch, start, processor = Stopwatch(), time.perf_counter(), time.process_time()
                machine = Cleartext(watch, strict=False)
                with np.errstate(over="ignore", invalid="ignore"):  # of an image beyond the bounds
                    logits = circuit.logits(circuit(machine, circuit.encode(image)))
                watch("")
                seconds, used = time.perf_counter() - start, time.process_time() - processor
                yield Answer(logits, (0, 0), (0.0, seconds), used, dict(watch.seconds))
            progress.image(len(real))

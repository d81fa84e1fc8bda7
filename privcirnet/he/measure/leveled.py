"""Leveled inference, timed: whole images, and circuits of hours by steps that stand for many others."""

from collections import Counter
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from privcirnet.he.leveled import engine
from privcirnet.he.leveled.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.he.leveled.parameters import LeveledParameters
from privcirnet.he.leveled.plan import Plan
from privcirnet.he.leveled.repetitions import without_repetitions
from privcirnet.he.leveled.weights import encode
from privcirnet.he.ring import modular

_PASSES = 2
"""Runs of each step, of which the quickest counts: compiled kernels are loaded in the first."""
CLIENT, MESSAGES = "client", "messages"
"""What :func:`seconds_by_steps` calls the client's work, and the server's on requests and answers."""


class Seconds(NamedTuple):
    """Seconds of one image.

    Attributes:
        image: of the clock, both parties.
        server: of the clock.
        image_work: of processors, both parties.
        server_work: of processors.
    """

    image: float
    server: float
    image_work: float
    server_work: float


class LeveledBenchmark:
    """Both parties of a plan on one engine, image after image; the first one, which loads kernels, is not timed.

    Args:
        plan: of a network.
        parameters: for it.
        engine: of both parties.

    Attributes:
        plan: as given.
        parameters: as given.
        key_bytes: of the client's keys.
        images: run so far.
        equal: those whose results are the integer network's.
    """

    def __init__(self, plan: Plan, parameters: LeveledParameters, engine: str = "kernel") -> None:
        self.plan, self.parameters, self.images, self.equal = plan, parameters, 0, 0
        self._client = LeveledInferenceClient(plan.public, parameters, engine)
        self._server = LeveledInferenceServer(plan, parameters, engine)
        sent = self._client.keys()
        self.key_bytes, self._keys = sum(map(len, sent)), self._server.load_keys(sent)
        self._seconds, self._bytes = list[Seconds](), (0, 0)

    def run(self, image: np.ndarray) -> None:
        """Run an image.

        Args:
            image: integers, (C, H, W).
        """
        clock, work = [perf_counter()], [process_time()]

        def passed() -> None:
            clock.append(perf_counter())
            work.append(process_time())

        request = self._client.request(image)
        passed()
        answer = self._server.answer(request, self._keys)
        passed()
        results = self._client.results(answer)
        passed()
        self._seconds.append(Seconds(clock[3] - clock[0], clock[2] - clock[1], work[3] - work[0], work[2] - work[1]))
        up, down = (sum(len(one) for row in message for one in row) for message in (request, answer))
        self._bytes = up, down
        self.images += 1
        self.equal += list(results) == list(self.plan.network.evaluate(image))

    @property
    def seconds(self) -> list[Seconds]:
        """Of each image but the first, or of the only one."""
        return self._seconds[1:] or self._seconds

    @property
    def message_bytes(self) -> tuple[int, int]:
        """(Request, answer) of the last image."""
        return self._bytes

    def close(self) -> None:
        """Forget the client's keys."""
        self._client.close()


def seconds_by_steps(plan: Plan, parameters: LeveledParameters) -> dict[str, float]:
    """Return the processor seconds of an image on the kernels, extrapolated from steps that stand for many others.

    Steps of one kind on values of one kind take as long (:mod:`leveled.repetitions`): one of them is timed, with real
    keys, ciphertexts and weights, and counted as often as it stands in the circuit, for each plain modulus. So is one
    message of a request and of an answer. Weights are encoded before, as they are where they stay in memory.

    Args:
        plan: of a network, with its modulus switches.
        parameters: for it.

    Returns:
        by layer or square, and for :data:`CLIENT` and :data:`MESSAGES`.
    """
    circuit, counts = without_repetitions(plan.circuit)
    made = _Sample(LeveledInferenceClient(plan.public, parameters), plan, parameters)
    evaluator, found = made.server.evaluators[0], list[list[float]]()
    plaintexts = encode(circuit, evaluator, len(parameters.data_bits))
    for _ in range(_PASSES):
        found.append([])
        value = made.received()
        outputs = engine.run(circuit, plaintexts, [value] * circuit.inputs, evaluator, made.keys[0], found[-1])
        made.answered(outputs[0])
    total = Counter[str]()
    for layer, count, seconds in zip(circuit.layers, counts, zip(*found, strict=True), strict=True):
        total[layer] += count * min(seconds) * len(parameters.moduli)
    made.client.close()
    return {**total, **made.total}


@dataclass
class _Clock:
    """Processor seconds since the last look."""

    last: float = 0.0

    def passed(self) -> float:
        before, self.last = self.last, process_time()
        return self.last - before


class _Sample:
    """One message of a request and one of an answer; ``total`` is what all of them take."""

    def __init__(self, client: LeveledInferenceClient, plan: Plan, parameters: LeveledParameters) -> None:
        self.client, self._plan, self._parameters = client, plan, parameters
        self.server = engine.leveled_server("kernel", parameters, plan.public)
        self.keys = self.server.load_evaluation_keys(client.keys())
        self._seen = list[list[float]]()

    def received(self) -> object:
        """A message of a request, encrypted and loaded for one plain modulus."""
        network, moduli, clock = self._plan.network, self._parameters.moduli, _Clock(process_time())
        image = np.random.default_rng(0).integers(network.low, network.high + 1, network.input_shape)
        slots = self._plan.public.encode(image)[:1]
        encoded = clock.passed()
        rows = self.client.engine.encrypt_all([modular.residues(slots, each.plain_modulus) for each in moduli])
        encrypted, received = clock.passed(), self.server.receive_all(rows)
        loaded = clock.passed()
        (value,) = received[0]()
        self._seen.append([encoded, encrypted, loaded, clock.passed()])
        return value

    def answered(self, value: object) -> None:
        """An answer to it, masked, flooded and decrypted."""
        clock, nothing = _Clock(process_time()), np.zeros(self._parameters.ring_degree, dtype=np.uint64)
        message = self.server.evaluators[0].answer(value, nothing, self.keys[0])
        made = clock.passed()
        self.client.engine.decrypt(0, message)
        self._seen[-1] += [made, clock.passed()]

    @property
    def total(self) -> dict[str, float]:
        """Seconds of all messages, for all plain moduli."""
        encoded, encrypted, loaded, own, made, decrypted = (min(each) for each in zip(*self._seen, strict=True))
        inputs, moduli = self._plan.public.inputs, len(self._parameters.moduli)
        outputs = self._plan.public.outputs * moduli
        client = encoded + inputs * encrypted + outputs * decrypted
        return {CLIENT: client, MESSAGES: inputs * (loaded + own * moduli) + outputs * made}

"""Leveled inference, timed: whole images, and circuits of hours by steps that stand for many others."""

from collections import Counter
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from papers.falcon2020.circuits.engines import engine_of
from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.circuits.repetitions import without_repetitions
from papers.falcon2020.planning.parameters import LeveledParameters
from papers.falcon2020.planning.plan import Plan
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer

_PASSES = 2
"""Runs of each step, of which the quickest counts: compiled kernels are loaded in the first."""
CLIENT, MESSAGES = "client", "messages"
"""What :func:`seconds_by_steps` calls the client's work, and the server's on requests and answers."""


class Seconds(NamedTuple):
    """Seconds of one image."""

    image: float
    server: float
    image_work: float
    server_work: float


class LeveledBenchmark:
    """Both parties of a plan on one engine, image after image; the first one, which loads kernels, is not timed."""

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


class _Looks:
    """Processor seconds between looks at the clock."""

    def __init__(self) -> None:
        self.seconds, self._last = list[float](), process_time()

    def look(self) -> None:
        before, self._last = self._last, process_time()
        self.seconds.append(self._last - before)


def seconds_by_steps(plan: Plan, parameters: LeveledParameters) -> dict[str, float]:
    """Return the processor seconds of an image on the kernels, extrapolated from steps that stand for many others.

    Steps of one kind on values of one kind take as long (:mod:`falcon2020.circuits.repetitions`): one of them is timed,
    with real keys, ciphertexts and weights, and counted as often as it stands in the circuit, for each plain modulus.
    So is one ciphertext of an answer. Weights are encoded before, as they are where they stay in memory.

    Returns:
        by layer or square, and for :data:`CLIENT` and :data:`MESSAGES`.
    """
    circuit, counts = without_repetitions(plan.circuit)
    client = LeveledInferenceClient(plan.public, parameters)
    server = engine_of("kernel").server(parameters, plan.public)
    keys = server.load_evaluation_keys(client.keys())[0]
    evaluator, moduli = server.evaluators[0], len(parameters.moduli)
    plaintexts = encode(circuit, evaluator, len(parameters.data_bits))
    nothing = np.zeros(parameters.ring_degree, dtype=np.uint64)
    image = np.random.default_rng(0).integers(plan.network.low, plan.network.high + 1, plan.network.input_shape)
    found, messages = list[list[float]](), list[list[float]]()
    for _ in range(_PASSES):
        clock, steps = _Looks(), list[float]()
        request = client.request(image)
        clock.look()
        received = server.receive_all(request)
        clock.look()
        inputs = received[0]()
        clock.look()
        results = run(circuit, plaintexts, inputs, evaluator, keys, steps)
        clock.look()
        answer = evaluator.answer(results[0], nothing, keys)
        clock.look()
        _ = client.engine.decrypt(0, answer)
        clock.look()
        found.append(steps)
        messages.append(clock.seconds)
    client.close()
    total, answers = Counter[str](), plan.public.outputs * moduli
    for layer, count, seconds in zip(circuit.layers, counts, zip(*found, strict=True), strict=True):
        total[layer] += count * min(seconds) * moduli
    requested, loaded, own, _, made, decrypted = (min(each) for each in zip(*messages, strict=True))
    return {**total, CLIENT: requested + answers * decrypted, MESSAGES: loaded + own * moduli + answers * made}

"""Leveled inference between two parties: keys once, then for each image one request and one answer.

A request has one row of messages for all plain moduli, or one for each, as the engine has it; an answer has one for
each. Lengths follow from the parameters, so whatever is cut short or foreign is refused before it is parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from papers.falcon2020.circuits.engines import engine_of
from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.planning.parameters import LeveledParameters, check_parameters
from papers.falcon2020.planning.plan import Plan, PublicPlan
from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.protocol.one_message.reading import Message, check_counts
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message as Bytes
from privcirnet.he.system.threads import each

if TYPE_CHECKING:
    from papers.falcon2020.circuits.kernel import LeveledKernelClient


@dataclass
class Watched:
    """Values of an inference that are kept for an audit.

    Attributes:
        values: by their numbers in the circuit.
        found: of the last inference, for each plain modulus.
    """

    values: tuple[int, ...]
    found: list[list[Any]] = field(default_factory=list[list[Any]], repr=False)


class LeveledInferenceClient:
    """The party with the image and the secret key.

    Args:
        engine: one of :data:`bfv.engines.ENGINES`.
    """

    def __init__(self, plan: PublicPlan, parameters: LeveledParameters, engine: str = "kernel") -> None:
        self._plan, self._parameters = plan, parameters
        self.engine = engine_of(engine).client(parameters, plan)

    def keys(self) -> list[bytes]:
        """Return the evaluation keys: one message for all plain moduli, or one for each."""
        return self.engine.evaluation_keys()

    def request(self, image: np.ndarray) -> Message:
        """Return an encrypted image.

        Args:
            image: integers, (C, H, W).

        Raises:
            RuleError: a pixel is out of range, or the image has another shape.
        """
        slots = self._plan.encode(image)
        return self.engine.encrypt_all([modular.residues(slots, m.plain_modulus) for m in self._parameters.moduli])

    def results(self, answer: Message) -> np.ndarray:
        """Return the network's results: Python integers, (K,).

        Raises:
            RuleError: it is not such an answer, or a result is wrong.
        """
        moduli = self._parameters.moduli
        check_counts(answer, len(moduli), self._plan.outputs, "an answer")
        found: list[Residues] = []
        for number, messages in enumerate(answer):
            slots = np.stack([self.engine.decrypt(number, message) for message in messages])
            found.append(self._plan.gather(slots, moduli[number].plain_modulus))
        return self._plan.decode(self._parameters.combined(found))

    def slots(self, messages: Sequence[bytes]) -> list[np.ndarray]:
        """Return all slots of a ciphertext of an answer, for each plain modulus.

        Args:
            messages: one for each plain modulus.
        """
        return [self.engine.decrypt(number, message) for number, message in enumerate(messages)]

    def secret(self) -> bytes:
        """Return the secret key, for a client whose steps are programs of their own; who has it reads everything.

        Raises:
            RuleError: the engine is not the kernels'.
        """
        return self._kernels().export_secret()

    def restore(self, secret: bytes) -> None:
        """Take another secret key in place of the own one.

        Args:
            secret: from :meth:`secret`.

        Raises:
            RuleError: it is not of these parameters, or the engine is not the kernels'.
        """
        self._kernels().restore_secret(secret)

    def _kernels(self) -> "LeveledKernelClient":
        from papers.falcon2020.circuits.kernel import LeveledKernelClient

        if not isinstance(self.engine, LeveledKernelClient):
            rule, remedy = "a secret key can be stored by the kernels alone", "use engine=kernel"
            raise RuleError(rule, got=type(self.engine).__name__, remedy=remedy)
        return self.engine

    def close(self) -> None:
        """Forget the secret key."""
        self.engine.close()


class LeveledInferenceServer:
    """The party with the weights.

    Args:
        engine: one of :data:`bfv.engines.ENGINES`.
        cache: how much memory encoded weights may take; None: as much as they need.
    """

    def __init__(
        self, plan: Plan, parameters: LeveledParameters, engine: str = "kernel", cache: WeightCache | None = None
    ) -> None:
        check_parameters(parameters, plan.circuit, plan.network.bits, engine)
        self._plan, self._parameters, self.counts = plan, parameters, plan.circuit.counts
        self.engine, top = engine_of(engine).server(parameters, plan.public), len(parameters.data_bits)
        self._plaintexts = each(lambda own: encode(plan.circuit, own, top, cache), self.engine.evaluators)

    def in_words(self) -> str:
        """Return what it computes and what it takes."""
        plan, parameters = self._plan.public, self._parameters
        images = f"{plan.batch} images of" if plan.batch > 1 else "an image of"
        return (
            f"{len(self._plan.network.layers)} layers, one request for {images} {' x '.join(map(str, plan.image))} "
            f"integers in [{plan.low}, {plan.high}], n = {parameters.ring_degree}, "
            f"log q = {sum(parameters.coefficient_bits)}, {len(parameters.moduli)} plain moduli"
        )

    def load_keys(self, parts: Sequence[Bytes]) -> list[Any]:
        """Check and load a client's keys.

        Returns:
            them, for :meth:`answer`.
        """
        if len(parts) != self.engine.rows:
            got, remedy = f"{len(parts)} for {self.engine.rows}", "send what keys returned"
            raise RuleError("keys must be for every plain modulus", got=got, remedy=remedy)
        return self.engine.load_evaluation_keys([bytes(part) for part in parts])

    def answer(self, request: Message, keys: Sequence[Any], watched: Watched | None = None) -> Message:
        """Return the encrypted results of an encrypted image, masked wherever the client must not read.

        Args:
            watched: values to keep for an audit; None for none.

        Raises:
            RuleError: it is not such a request.
        """
        kept = watched.values if watched else ()
        circuit = replace(self._plan.circuit, outputs=kept + self._plan.circuit.outputs)
        check_counts(request, self.engine.rows, circuit.inputs, "a request")
        received = self.engine.receive_all(request)
        if watched:
            watched.found = [[] for _ in received]

        def one(number: int) -> list[bytes]:
            evaluator, key = self.engine.evaluators[number], keys[number]
            every = run(circuit, self._plaintexts[number], received[number](), evaluator, key)
            if watched:
                watched.found[number] = every[: len(kept)]
            t, results = evaluator.parameters.plain_modulus, every[len(kept) :]
            return [evaluator.answer(own, self._mask(output, t), key) for output, own in enumerate(results)]

        return each(one, range(len(received)))

    def reveal(self, watched: Watched, keys: Sequence[Any]) -> Message:
        """Return the values of an inference under the client's keys, none of them masked: for an audit."""
        nothing = np.zeros(self._plan.circuit.ring_degree, dtype=np.uint64)
        rows = zip(self.engine.evaluators, watched.found, keys, strict=True)
        return [[evaluator.answer(value, nothing, key) for value in values] for evaluator, values, key in rows]

    def _mask(self, output: int, t: int) -> Residues:
        """Uniform where slots hold partial sums of weights and values; those of a result are shares of zero."""
        public = self._plan.public
        mask = sampling.uniform((public.ring_degree,), t)
        for number, place in public.results:
            if number == output:
                slots = public.slots(place)
                mask[slots[0]] = -mask[slots[1:]].sum(dtype=object) % t
        return mask

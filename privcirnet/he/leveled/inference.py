"""Leveled inference between two parties: keys once, then for each image one request and one answer.

Every message is the messages of all plain moduli, one after the other; lengths follow from the parameters, so whatever
is cut short or foreign is refused before it is parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.leveled import engine as engines
from privcirnet.he.leveled.parameters import LeveledParameters, check_parameters
from privcirnet.he.leveled.plan import Plan, PublicPlan
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues

Message = list[list[bytes]]
"""For each plain modulus, its ciphertexts."""


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
    """The party with the image and the secret keys, one for each plain modulus.

    Args:
        plan: the public half of the network's.
        parameters: that the plan was made for.
        engine: one of :data:`leveled.engine.ENGINES`.
    """

    def __init__(self, plan: PublicPlan, parameters: LeveledParameters, engine: str = "tenseal") -> None:
        self._plan, self._parameters = plan, parameters
        self._engines = [engines.leveled_client(engine, each) for each in parameters.moduli]

    def keys(self) -> list[bytes]:
        """Return the evaluation keys for each plain modulus."""
        return [each.evaluation_keys(self._plan.rotations) for each in self._engines]

    def request(self, image: np.ndarray) -> Message:
        """Return an encrypted image.

        Args:
            image: integers, (C, H, W).

        Raises:
            RuleError: a pixel is out of range, or the image has another shape.
        """
        slots = self._plan.encode(image)
        return [
            [client.encrypt(row) for row in modular.residues(slots, each.plain_modulus)]
            for client, each in zip(self._engines, self._parameters.moduli, strict=True)
        ]

    def results(self, answer: Message) -> np.ndarray:
        """Return the network's results.

        Args:
            answer: from the server.

        Returns:
            Python integers, (K,).

        Raises:
            RuleError: it is not such an answer, or a result is wrong.
        """
        _check_counts(answer, len(self._engines), self._plan.outputs, "an answer")
        residues = [
            np.stack([client.decrypt(message) for message in messages])
            for client, messages in zip(self._engines, answer, strict=True)
        ]
        return self._plan.decode(self._parameters.combined(residues))

    def slots(self, messages: Sequence[bytes]) -> list[np.ndarray]:
        """Return all slots of a ciphertext of an answer, for each plain modulus.

        Args:
            messages: one for each plain modulus.
        """
        return [client.decrypt(message) for client, message in zip(self._engines, messages, strict=True)]

    def close(self) -> None:
        """Forget the secret keys."""
        for each in self._engines:
            each.close()


class LeveledInferenceServer:
    """The party with the weights.

    Args:
        plan: of the network, with weights.
        parameters: that the plan was made for.
        engine: one of :data:`leveled.engine.ENGINES`.

    Raises:
        RuleError: the network is deeper or its values are larger than the parameters carry.
    """

    def __init__(self, plan: Plan, parameters: LeveledParameters, engine: str = "tenseal") -> None:
        check_parameters(parameters, plan.circuit, plan.network.bits)
        self._plan, self._parameters = plan, parameters
        self.engines = [engines.leveled_server(engine, each) for each in parameters.moduli]
        self._plaintexts = [engines.encode(plan.circuit, each) for each in self.engines]

    def load_keys(self, keys: Sequence[bytes]) -> list[Any]:
        """Check and load a client's keys.

        Args:
            keys: from :meth:`LeveledInferenceClient.keys`.

        Returns:
            them, for :meth:`answer`.

        Raises:
            RuleError: they are not such keys.
        """
        if len(keys) != len(self.engines):
            got, remedy = f"{len(keys)} for {len(self.engines)}", "send what keys returned"
            raise RuleError("keys must be for every plain modulus", got=got, remedy=remedy)
        rotations = self._plan.circuit.rotations
        return [each.load_evaluation_keys(one, rotations) for each, one in zip(self.engines, keys, strict=True)]

    def answer(self, request: Message, keys: Sequence[Any], watched: Watched | None = None) -> Message:
        """Return the encrypted results of an encrypted image, masked wherever the client must not read.

        Args:
            request: from :meth:`LeveledInferenceClient.request`.
            keys: from :meth:`load_keys`.
            watched: values to keep for an audit; None for none.

        Raises:
            RuleError: it is not such a request.
        """
        circuit, kept = self._plan.circuit, watched.values if watched else ()
        if watched:
            watched.found.clear()
        _check_counts(request, len(self.engines), circuit.inputs, "a request")
        received = [[each.receive(one) for one in row] for each, row in zip(self.engines, request, strict=True)]
        answer: Message = []
        for server, inputs, plaintexts, key in zip(self.engines, received, self._plaintexts, keys, strict=True):
            every = engines.run(replace(circuit, outputs=kept + circuit.outputs), plaintexts, inputs, server, key)
            results = every[len(kept) :]
            if watched:
                watched.found.append(every[: len(kept)])
            masks = [self._mask(number, server.parameters.plain_modulus) for number in range(len(results))]
            answer.append([server.answer(result, mask, key) for result, mask in zip(results, masks, strict=True)])
        return answer

    def reveal(self, watched: Watched, keys: Sequence[Any]) -> Message:
        """Return the values of an inference under the client's keys, none of them masked: for an audit.

        Args:
            watched: what :meth:`answer` kept.
            keys: from :meth:`load_keys`.
        """
        nothing = np.zeros(self._plan.circuit.ring_degree, dtype=np.uint64)
        each = zip(self.engines, watched.found, keys, strict=True)
        return [[server.answer(value, nothing, key) for value in values] for server, values, key in each]

    def _mask(self, output: int, t: int) -> Residues:
        """Uniform where the slots hold partial sums of weights and values, zero where they hold results."""
        uniform = sampling.uniform((self._plan.circuit.ring_degree,), t)
        return np.where(self._plan.public.free(output), uniform, np.uint64(0))


def _check_counts(message: Message, moduli: int, each: int, what: str) -> None:
    counts = [len(messages) for messages in message]
    if counts != [each] * moduli:
        got, remedy = f"{counts}", "use the same version and network on both sides"
        raise RuleError(
            f"{what} must have {each} ciphertexts for each of {moduli} plain moduli", got=got, remedy=remedy
        )

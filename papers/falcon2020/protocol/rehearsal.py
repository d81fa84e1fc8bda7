"""A leveled program's circuit in clear: what an audit compares decrypted values with."""

from dataclasses import replace

import numpy as np

from papers.falcon2020.circuits.engines import engine_of
from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.protocol.leveled_program import LeveledProgram
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.ring import modular

_MOST_BYTES = 500_000_000
"""Of plaintexts that stay in memory."""


class Rehearsal:
    """A program's circuit on the clear-text engine, for many images."""

    def __init__(self, program: LeveledProgram) -> None:
        self._program = program
        self._circuit = replace(program.plan.circuit, outputs=tuple(program.ends.values()))
        engine, parties = engine_of("cleartext"), (program.parameters, program.plan.public)
        self._client, self._server = engine.client(*parties), engine.server(*parties)
        self._keys = self._server.load_evaluation_keys(self._client.evaluation_keys())
        top, cache = len(program.parameters.data_bits), WeightCache(_MOST_BYTES)
        self._plaintexts = [encode(self._circuit, own, top, cache) for own in self._server.evaluators]

    def values(self, image: np.ndarray) -> dict[str, list[np.ndarray]]:
        """Return the slots of the last value of every layer and square, for each plain modulus.

        Args:
            image: integers, as :meth:`papers.falcon2020.planning.plan.PublicPlan.encode` takes them.
        """
        slots, moduli = self._program.plan.public.encode(image), self._program.parameters.moduli
        rows = self._client.encrypt_all([modular.residues(slots, each.plain_modulus) for each in moduli])
        found: dict[str, list[np.ndarray]] = {name: [] for name in self._program.ends}
        nothing = np.zeros(self._circuit.ring_degree, dtype=np.uint64)
        each = zip(self._server.evaluators, self._plaintexts, self._server.receive_all(rows), self._keys, strict=True)
        for number, (evaluator, plaintexts, inputs, keys) in enumerate(each):
            results = run(self._circuit, plaintexts, inputs(), evaluator, keys)
            for name, result in zip(found, results, strict=True):
                found[name].append(self._client.decrypt(number, evaluator.answer(result, nothing, keys)))
        return found

    def wrong(self, image: np.ndarray, opened: dict[str, list[np.ndarray]]) -> list[str]:
        """Return the names of the layers and squares with a slot that is not what it is in clear."""
        return [
            name
            for name, rows in self.values(image).items()
            if not all(np.array_equal(row, other) for row, other in zip(rows, opened[name], strict=True))
        ]

"""A leveled program's circuit in clear: what an audit compares decrypted values with."""

from dataclasses import replace

import numpy as np

from privcirnet.he.leveled import engine
from privcirnet.he.leveled.program import LeveledProgram
from privcirnet.he.ring import modular


class Rehearsal:
    """A program's circuit on the clear-text engine, for many images.

    Args:
        program: with weights.
    """

    def __init__(self, program: LeveledProgram) -> None:
        self._program = program
        self._circuit = replace(program.plan.circuit, outputs=tuple(program.ends.values()))
        self._servers = [engine.leveled_server("cleartext", each) for each in program.parameters.moduli]
        self._clients = [engine.leveled_client("cleartext", each) for each in program.parameters.moduli]
        self._plaintexts = [engine.encode(self._circuit, server) for server in self._servers]

    def values(self, image: np.ndarray) -> dict[str, list[np.ndarray]]:
        """Return the slots of the last value of every layer and square, for each plain modulus.

        Args:
            image: integers, as :meth:`leveled.plan.PublicPlan.encode` takes them.
        """
        slots, rotations = self._program.plan.public.encode(image), self._circuit.rotations
        found: dict[str, list[np.ndarray]] = {name: [] for name in self._program.ends}
        for client, server, plaintexts in zip(self._clients, self._servers, self._plaintexts, strict=True):
            rows = modular.residues(slots, server.parameters.plain_modulus)
            inputs = [server.receive(client.encrypt(row)) for row in rows]
            keys = server.load_evaluation_keys(client.evaluation_keys(rotations), rotations)
            results = engine.run(self._circuit, plaintexts, inputs, server, keys)
            nothing = np.zeros(self._circuit.ring_degree, dtype=np.uint64)
            for name, result in zip(found, results, strict=True):
                found[name].append(client.decrypt(server.answer(result, nothing, keys)))
        return found

    def wrong(self, image: np.ndarray, opened: dict[str, list[np.ndarray]]) -> list[str]:
        """Return the names of the layers and squares with a slot that is not what it is in clear.

        Args:
            image: as above.
            opened: decrypted values, from :meth:`leveled.session.LeveledClient.opened`.
        """
        return [
            name
            for name, rows in self.values(image).items()
            if not all(np.array_equal(row, other) for row, other in zip(rows, opened[name], strict=True))
        ]

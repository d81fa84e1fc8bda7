"""The client on compiled kernels: one secret, one set of keys and one request for all plain moduli.

Keys on the wire: the public key (an encryption of zero), then the switch keys in the order of the plan's ``keys``; all
are seeded, and each has no more data primes than what it switches.
"""

from collections.abc import Sequence

from privcirnet.he.circuits.bfv.network_circuit import RELINEARIZE, KeyPlan, element_of
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.client import SecretKey
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters
from privcirnet.he.system.threads import each


class KernelClient(SecretKey):
    """The client's side for all plain moduli; see :class:`circuits.bfv.leveled.interface.LeveledClient`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        numbers = range(len(parameters.moduli))
        super().__init__(parameters.rlwe, [parameters.at(number, plan.level) for number in numbers])
        self._plan = plan

    def evaluation_keys(self) -> list[bytes]:
        """Return the public key and all switch keys, in one message."""
        n = self.chain.parameters.ring_degree
        made = [self.public_key(self._plan.level)]
        for kind, level in self._plan.keys:
            squares = kind == RELINEARIZE
            made.append(
                self.relinearization_key(level) if squares else self.automorphism_key(level, element_of(kind, n))
            )
        return [b"".join(made)]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """Return one row of seeded ciphertexts.

        Args:
            slots: for each plain modulus, residues of shape (inputs, n).
        """
        return [each(lambda number: self.request([own[number] for own in slots]), range(len(slots[0])))]

    def decrypt(self, number: int, message: bytes) -> Residues:
        """Return the slots of an answer, shape (n,).

        Args:
            message: what the server's ``answer`` returned.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        return self.answer(number, message)

"""The client on compiled kernels: one secret, one set of keys and one request for all plain moduli.

Keys on the wire: the public key (an encryption of zero), then the switch keys in the order of the plan's ``keys``; all
are seeded, and each has no more data primes than what it switches.
"""

from collections.abc import Sequence

from privcirnet.he.circuits.bfv.network_circuit import KeyPlan
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
        super().__init__(parameters.rlwe, [parameters.at(number, plan.primes) for number in numbers])
        self._plan = plan

    def evaluation_keys(self) -> list[bytes]:
        """In one message."""
        switches = [self.switch_key(primes, name) for name, primes in self._plan.keys]
        return [b"".join([self.public_key(self._plan.primes), *switches])]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """One row of seeded ciphertexts."""
        return [each(lambda number: self.request([own[number] for own in slots]), range(len(slots[0])))]

    def decrypt(self, number: int, message: bytes) -> Residues:
        return self.answer(number, message)

"""The client: its secret key, the keys that it gives away, requests and results.

Everything that travels is in compact bytes (:mod:`rlwe.wire_bytes`), and the polynomial a of every ciphertext and
key digit is a seed. Randomness comes from the operating system; each error has a stream of its own. Polynomials travel
in the NTT order that they are computed with, in which a is uniform as well.
"""

import numpy as np
import numpy.typing as npt

from privcirnet.he.ckks.context import Context, Names
from privcirnet.he.ckks.embedding import Slots, to_slots
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Integers, Residues, centered
from privcirnet.he.ring.sampling import stream, wipe
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import rns, secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.parameters import EPHEMERAL, FROM_EPHEMERAL, LOW, is_low
from privcirnet.he.rlwe.wire_bytes import Message, check_length


class CkksClient:
    """The holder of the secret key, which is ternary and uniform."""

    def __init__(self, parameters: CkksParameters) -> None:
        self.context = Context(parameters)
        self._secret: Residues | None = secret_key.generate(self.context.ring)
        weight = parameters.ephemeral_weight
        self._sparse: Residues | None = secret_key.sparse(self.context.ring, weight) if weight else None

    def encrypt(self, slots: npt.ArrayLike, level: int | None = None) -> bytes:
        """Encrypt slots with the secret key.

        Args:
            slots: shape (n / 2,), real or complex, or one number for all.
            level: level of the ciphertext; None: the top level.

        Returns:
            one polynomial in compact bytes, and the seed of the other.

        Raises:
            RuleError: there are more or fewer slots, or they are too large.
        """
        parameters = self.context.parameters
        level = parameters.levels if level is None else level
        return self._encrypted(self.context.integers(slots, parameters.scales[level]), level)

    def public_key(self) -> bytes:
        """Return an encryption of zero of level 0, for what hides replies (:mod:`ckks.server`)."""
        return self.encrypt(0.0, 0)

    def evaluation_keys(self, names: Names) -> bytes:
        """Return keys for :meth:`CkksServer.load_keys`.

        Args:
            names: names of keys, with the highest level of each (``simulator.keys``), which shortens them; or
                Galois elements: keys for all levels then, and the one for products.
        """
        return b"".join(self._switch_key(name, level) for name, level in self.context.named(names).items())

    def decrypt(self, message: Message) -> Slots:
        """Decrypt a result; see docs/ckks.md, "Who may see a result", for what it reveals beyond the slots.

        Args:
            message: result of :meth:`CkksServer.reply`: a ciphertext of level 0.

        Returns:
            slots, shape (n / 2,).

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        scale = self.context.parameters.scales[0]
        return to_slots(self._coefficients(message) / scale)

    def decrypt_to_share(self, message: Message, noise_bits: int) -> Slots:
        """Decrypt a result that others will see: with flooding noise, which hides what its error says of the key.

        The coefficients get the sum of three uniform integers, each 2^40 times as wide as the error's bound, so that an
        image's results are within 2^-30 of ones that the error has no part in (:mod:`ring.sampling`). A result with p
        bits of precision keeps about p - 42 of them.

        Args:
            message: see :meth:`decrypt`.
            noise_bits: log2 of a bound on the error's coefficients, as integers
                (:meth:`ckks.simulator.ErrorEstimate.noise_bits`).

        Returns:
            slots, shape (n / 2,).

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        integers = self._coefficients(message)
        digits, (powers, offset) = self._flood(noise_bits + sampling.FLOODING_BITS, integers.size)
        noise = sum(digit.astype(np.float64) * power for digit, power in zip(digits, powers, strict=True)) - offset
        return to_slots((integers + noise) / self.context.parameters.scales[0])

    def close(self) -> None:
        """Forget the secret keys; their memory is zeroed."""
        wipe([self._secret, self._sparse])
        self._secret = self._sparse = None

    def _key(self) -> Residues:
        if self._secret is None:
            raise RuntimeError("a closed client has no keys")
        return self._secret

    def _switch_key(self, name: int, level: int) -> bytes:
        """Return the key of a name for a level and all under it."""
        if not is_low(name):
            return self._made(self.context, self._key(), name, level)
        if self.context.low is None:
            raise ValueError("these parameters have no lower levels")
        secret = self._key()[:, self.context.low_rows].copy()
        key = self._made(self.context.low, secret, name - LOW, level)
        wipe([secret])
        return key

    def _made(self, context: Context, secret: Residues, name: int, level: int) -> bytes:
        """Return a key under the primes of a context."""
        chain, count = context.key_chain(name, level)
        if name not in EPHEMERAL:
            return switch_keys.make_named(chain, count, secret, name)
        if self._sparse is None:
            raise ValueError("these parameters have no sparse secret")
        if name == FROM_EPHEMERAL:
            return switch_keys.make(chain, count, self._sparse[0], secret)
        limbs = [0, len(context.parameters.data_primes)]  # those of q_0 and of one special prime
        secrets = secret[0, limbs].copy(), self._sparse[:, limbs].copy()
        switch_key = switch_keys.make(chain, count, *secrets)
        wipe(secrets)
        return switch_key

    def _encrypted(self, integers: Integers, level: int) -> bytes:
        """Encrypt coefficients at a level."""
        modulus, key = self.context.modulus(level), self._key()
        drawn = secret_key.draw(integers.size)
        words = uniform.expanded(drawn.seed, modulus)
        for limb in range(level + 1):
            secret = key[:, limb].copy()
            rns.encrypt_row(words[limb], secret, drawn.error, integers, self.context.ring.tables, limb)
            wipe([secret])
        wipe([drawn.error])
        return wire_bytes.pack(words, modulus.bits) + drawn.seed

    def _coefficients(self, message: Message) -> Integers:
        """Return the signed coefficients of a result of level 0, shape (n,)."""
        context, modulus = self.context, self.context.modulus(0)
        check_length(message, modulus.compact_size(2))
        half = modulus.compact_size(1)
        parts = [wire_bytes.unpack(part, modulus.primes, modulus.bits) for part in (message[:half], message[half:])]
        coefficients = np.empty((1, modulus.ring_degree), dtype=np.uint64)
        key = self._key()[:, 0].copy()
        rns.decrypt_row(coefficients, np.concatenate(parts), key, context.ring.tables, 0)
        wipe([key])
        return centered(coefficients[0], modulus.primes[0])

    @staticmethod
    def _flood(bits: int, count: int) -> tuple[Residues, tuple[tuple[int, ...], int]]:
        return sampling.flood_digits(bits, count, stream()), sampling.flood_powers(bits)

"""A reply's coefficients on the wire: rounded to little more than the bits of t.

After the modulus switch a coefficient x is a number mod q', the product of a few primes, most of whose bits hold noise.
Messages hold round(x 2^k / q') mod 2^k, and the client takes round(q' y / 2^k) for x. That is a modulus switch to a
power of two and back. :func:`bfv.sizes.reply_bits` says which k keeps every reply right; where 2^k >= q'
nothing is lost. A reply tells no more than before, since the rounding is a function of it.

Format: for either polynomial the lower floor(k / 2) bits of all coefficients in ascending order, then the others, as
one stream of bits that ends with a whole byte, little-endian.

:mod:`bfv.kernels.rounding` does it.

Source: modulus switching is Brakerski and Vaikuntanathan's (FOCS 2011). Cheetah (USENIX Security 2022, section 5) drops
low bits of both polynomials, too.
"""

from dataclasses import dataclass

from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.bfv.sizes import ReplyBits, reply_bits, reply_primes
from privcirnet.he.rlwe.wire_bytes import Message, WireFormat, check_length


@dataclass(frozen=True)
class ReplyFormat:
    """Format of a reply's bytes.

    Attributes:
        modulus: q', after the switch.
    """

    modulus: WireFormat
    bits: ReplyBits

    @classmethod
    def of(cls, parameters: Parameters, primes: tuple[int, ...]) -> "ReplyFormat":
        """Return the format that follows from parameters.

        Args:
            parameters: n, q, t.
            primes: primes of q, at least the first ones, in SEAL's order.
        """
        count = reply_primes(parameters.coefficient_bits, parameters.plain_bits)
        bits = reply_bits(parameters.coefficient_bits, parameters.plain_bits)
        return cls(WireFormat(primes[:count], parameters.ring_degree), bits)

    def cut(self, message: Message, count: int) -> tuple[Message, Message]:
        """Return the bytes of the two polynomials.

        Args:
            count: coefficients of the first polynomial that it holds.

        Raises:
            RuleError: the length is wrong.
        """
        check_length(message, self.bits.octets(self.modulus.ring_degree, count))
        end = self.bits.octets(0, count)
        return message[:end], message[end:]


def digits(bits: int) -> tuple[int, int]:
    """Return the bits of the two parts that a coefficient is sent in, the lower one first.

    Args:
        bits: k.
    """
    return bits // 2, bits - bits // 2

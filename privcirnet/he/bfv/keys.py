"""A client's keys as a server holds them, on every engine that hides something."""

from dataclasses import dataclass

from privcirnet.he.bfv.kernels.reply import PublicKey
from privcirnet.he.rlwe.kernels.modulus import RnsRing
from privcirnet.he.rlwe.seeded import read_one
from privcirnet.he.rlwe.switch_keys import KeySwitchingKeys
from privcirnet.he.rlwe.wire_bytes import Message, WireFormat


@dataclass(frozen=True)
class ClientKeys:
    """A client's keys on the server.

    Attributes:
        switches: switching keys by name; SEAL's objects hold several.
    """

    switches: KeySwitchingKeys
    public: PublicKey


def public_key(message: Message, modulus: WireFormat, extended: RnsRing) -> PublicKey:
    """Return a client's public key, checked: a seeded encryption of zero.

    Args:
        modulus: modulus of the data primes.
        extended: ring of the data primes and a special one.

    Raises:
        RuleError: the bytes are not such a ciphertext.
    """
    return PublicKey.build(extended, extended.values(read_one(message, modulus)))

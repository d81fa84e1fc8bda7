"""Ciphertexts on the server, and what their rotations share."""

from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class Ciphertext:
    """Two polynomials in the kernel's NTT order. Its scale is that of its level.

    Attributes:
        residues: shape (2, level + 1, n).
    """

    residues: Residues

    @property
    def level(self) -> int:
        """Rescalings that are left."""
        return self.residues.shape[1] - 1


@dataclass(frozen=True)
class Hoisted:
    """A ciphertext, and what its rotations share.

    Attributes:
        digits: of its second polynomial, shape (D', L' + k, n).
    """

    ciphertext: Ciphertext
    digits: Residues


def check_level(level: int) -> int:
    """Raise unless a ciphertext can be multiplied.

    Returns:
        the level.

    Raises:
        RuleError: it is 0.
    """
    if level < 1:
        raise RuleError("a product must find a level above 0", got="level 0", remedy="use parameters with more levels")
    return level

"""Baby and giant steps: how a linear transform by its diagonals is cut, whichever scheme or layout computes it.

    sum over d of diag_d * rot_d(x) = sum over g of rot_g(sum over b of rot_-g(diag_(g + b)) * rot_b(x)),   d = g + b

with g a multiple of a baby length B, a power of two, and b under it. Rotations by b share the digits of x (hoisting).
"""

from collections.abc import Collection


def powers_of_two(limit: int) -> list[int]:
    """Return the powers of two up to a number, ascending: every baby length of so many diagonals in a row."""
    return [1 << i for i in range(limit.bit_length())]


def groups(steps: Collection[int], length: int) -> dict[int, list[int]]:
    """Return giant step g -> its baby steps b, both ascending.

    Args:
        steps: rotation d of each diagonal, also negative.
        length: B.
    """
    babies: dict[int, list[int]] = {}
    for d in sorted(steps):
        babies.setdefault(d - d % length, []).append(d % length)
    return babies


def rotations(steps: Collection[int], length: int) -> tuple[set[int], set[int]]:
    """Return the baby steps and the giant steps that rotate, those but 0: each takes a key.

    Args:
        steps: rotation d of each diagonal.
        length: B.
    """
    return {d % length for d in steps} - {0}, {d - d % length for d in steps} - {0}


def cheapest(steps: Collection[int], baby: float = 1.0, giant: float = 1.0) -> int:
    """Return the baby length of the least work.

    Args:
        steps: rotation d of each diagonal.
        baby: cost of a baby step.
        giant: cost of a giant step.
    """

    def cost(length: int) -> float:
        babies, giants = rotations(steps, length)
        return baby * len(babies) + giant * len(giants)

    return min(powers_of_two(2 * max(map(abs, steps)) + 1), key=cost)

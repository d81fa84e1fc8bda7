"""Zeroing of the memory of used secrets, as far as Python allows it.

An array's own memory can be overwritten. Copies that NumPy made on the way to it cannot be found again, and bytes and
integers of Python cannot be changed: such copies stay until the system hands their memory to something else.
"""

from collections.abc import Iterable

from privcirnet.he.ring.modular import Residues


def wipe(arrays: Iterable[Residues | None]) -> None:
    """Overwrite arrays with zeros.

    Args:
        arrays: secrets that nobody uses any more; None is passed over, and so is memory that cannot be written.
    """
    for array in arrays:
        if array is not None and array.flags.writeable:
            array.fill(0)

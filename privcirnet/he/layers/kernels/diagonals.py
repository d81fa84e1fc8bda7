"""The plaintext of a product, made of the blocks' spectra in one pass."""

from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.jit import jit


@jit
def diagonal(
    slots: Residues, spectrum: Residues, blocks: Integers, groups: tuple[int, int], cells: tuple[int, int, int, int]
) -> None:
    """Write the slots of a diagonal, zeros where no block is: (2, lanes, slots of a lane / 2).

    Args:
        spectrum: spectra of all blocks, (groups, q, p, b, S1, S2).
        blocks: lane, output block and input block of each block of the diagonal, (3, blocks).
        groups: first channel group of a lane, and the one after its last.
        cells: tiles of a group in a lane, b, N1 and N2; a spectrum is constant along an axis on which it has 1 value.
    """
    tiles, b, rows, columns = cells
    half = slots.shape[2]
    slots[:] = 0
    for index in range(blocks.shape[1]):
        lane, i, j = blocks[0, index], blocks[1, index], blocks[2, index]
        place = 0
        for group in range(groups[0], groups[1]):
            block = spectrum[group, i, j]
            for _ in range(tiles):
                for c in range(b):
                    for r in range(rows):
                        row = block[c, r if block.shape[1] > 1 else 0]
                        for s in range(columns):
                            side = place >= half
                            slots[1 if side else 0, lane, place - half if side else place] = row[
                                s if row.shape[0] > 1 else 0
                            ]
                            place += 1

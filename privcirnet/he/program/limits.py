"""Limits on a program's description: bounds that keep a hostile one from taking all memory.

Everything here is arithmetic on the description. Nothing is allocated, no list is made that grows with a size in it.
The bounds are many times what the papers' networks need (a layer of 147,456 products, maps of 10^6 values, 200 keys).
The remaining work grows with honest sizes: a description within the bounds may still take minutes. The limits of
each encoding's own sizes are in :mod:`layers.spectral_pieces`.
"""

from collections.abc import Set

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import Parameters, ParameterSet, key_bytes
from privcirnet.he.layers.layer import Layer

MAX_BYTES = 1 << 22
"""Longest description that is parsed."""
MAX_NODES = 4096
MAX_STEPS = 1024
"""Most nodes of a program: each has a position of 16 bits in the messages, and a share."""
MAX_NAME = 256
"""Longest name."""
MAX_INTEGER = 1 << 62
"""Largest absolute value of any number in a description."""
MAX_VALUES = 1 << 24
"""Largest number of values in one node that is accepted."""
MAX_ALL_VALUES = 1 << 26
"""Largest number of values in all nodes together: each party holds a share of every one."""
MAX_KERNEL = 64
"""Largest stride of a grid that is accepted."""
MAX_TAPS = 1 << 12
"""Most weights of a kernel, and most positions from one window to the next, that are accepted: 64 x 64."""
MAX_PRODUCTS = 1 << 18
"""Largest number of plaintext products in one layer that is accepted."""
MAX_PIXEL = 1 << 32
"""Largest absolute value of an input that is accepted."""
MAX_LOG_STEP = 256
"""Largest absolute exponent of a step that is accepted."""
MAX_LENGTH = 512
"""Longest transform: its matrix has the square of that many numbers."""
MAX_SPECTRUM = 1 << 22
"""Largest number of values that one layer transforms at a time."""
MAX_SLOTS = 1 << 24
"""Largest number of slots in one message."""
MAX_KEY_BYTES = 1 << 28
"""Largest size of a program's Galois keys. The papers' networks need up to 161 MB; a client has six times the size in
memory while it makes them."""


def excess(layer: Layer, parameters: Parameters | ParameterSet) -> str:
    """Return the excess of a layer, "" if there is none. Plans with an excess are never chosen.

    Sizes come first, because everything else takes time that grows with them.

    Args:
        layer: layer whose kernel has been checked.
    """
    if problem := layer.size_excess:
        return problem
    if layer.most_products > MAX_PRODUCTS:
        return f"{layer.most_products} products"
    longest = max(layer.transform_lengths)
    if longest > MAX_LENGTH:
        return f"a transform of length {longest}"
    if layer.transformed_values > MAX_SPECTRUM:
        return f"transforms of {layer.transformed_values} values"
    slots = max(layer.ciphertexts_in, layer.ciphertexts_out) * parameters.ring_degree
    if slots > MAX_SLOTS:
        return f"messages of {slots} slots"
    size = len(layer.column_steps) * key_bytes(parameters)
    return f"Galois keys of {size} bytes" if size > MAX_KEY_BYTES else ""


def check_keys(steps: Set[int], parameters: Parameters) -> None:
    """Raise if a whole program asks for too many Galois keys, though each of its layers does not."""
    size = len(steps) * key_bytes(parameters)
    if size > MAX_KEY_BYTES:
        rule, remedy = f"a program's Galois keys must have at most {MAX_KEY_BYTES} bytes", "use larger block sizes"
        raise RuleError(rule, got=f"{len(steps)} keys of {size} bytes in all", remedy=remedy)

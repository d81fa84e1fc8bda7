"""What a program's description may ask of whoever reads it: bounds that keep a hostile one from taking all memory.

Everything here is arithmetic on the description; nothing is allocated and no list is made that grows with a size in it.
The bounds are many times what the papers' networks need (a layer of 147,456 products, maps of 10^6 values, 200 keys).
What is left grows with honest sizes: a description within the bounds may still ask for minutes of work.
"""

from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.params.sizes import key_bytes

MAX_BYTES = 1 << 22
"""Longest description that is parsed."""
MAX_NODES = 4096
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
"""Largest kernel size and stride that are accepted."""
MAX_TILES = 1 << 10
"""Most tiles along a transformed axis."""
MAX_PIECES = 1 << 12
"""Most pieces of a layer."""
MAX_PRODUCTS = 1 << 18
"""Largest number of plaintext products in one layer that is accepted."""
MAX_CHANNEL_PAIRS = 1 << 22
"""Most pairs of an input and an output channel that meet, in a coefficient encoding."""
MAX_SEARCH = 1 << 14
"""Most ciphertexts that a coefficient encoding's channel pairs would fill, each pair with its map's phase images: its
placement is searched."""
MAX_CHANNELS = 1 << 11
"""Most channels in a coefficient encoding."""
MAX_SEARCHED_KERNEL = 7
"""Largest kernel and stride in a coefficient encoding."""
MAX_POSITIONS = 1 << 17
"""Most positions of a map in a coefficient encoding."""
MAX_WEIGHT_BITS = 32
"""Most bits of a weight that a coefficient encoding's noise bound is made for."""
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
MAX_KEY_BYTES = 1 << 30
"""Largest size of a program's Galois keys."""


def grid_excess(layer: Layer) -> str:
    """What is too much about a layer's tiles and pieces, "" if nothing: looked at before anything that lists them."""
    if isinstance(layer, CoefficientLayer):
        return _placement_excess(layer)
    if len(layer.pieces) > MAX_PIECES:
        return f"{len(layer.pieces)} pieces"
    axes = layer.layout.rows, layer.layout.columns
    if any(tiled.axis.transformed and tiled.count > MAX_TILES for tiled in axes):
        return f"{axes[0].count} x {axes[1].count} tiles"
    return ""


def _placement_excess(layer: CoefficientLayer) -> str:
    """The same for a coefficient encoding, whose placement is searched anew by whoever reads its shape.

    Falcon's dense packing is the longer search, and at the ring degrees of programs the spectral encoding of a
    depthwise convolution needs fewer ciphertexts: programs do without it.
    """
    s = layer.shape
    if layer.encoding != "cheetah":
        return f"the encoding {layer.encoding}, which programs do not use"
    pairs = s.in_channels * s.out_channels // s.groups
    if pairs * len(s.rows.taps) * len(s.columns.taps) > MAX_CHANNEL_PAIRS:
        return f"{pairs} channel pairs"
    if max(s.in_channels, s.out_channels) > MAX_CHANNELS or max(s.kernel, s.stride) > MAX_SEARCHED_KERNEL:
        return f"{s.in_channels} to {s.out_channels} channels, kernel {s.kernel}, stride {s.stride}"
    searched = pairs * s.height * s.width * min(s.kernel, s.stride) ** 2
    if s.height * s.width > MAX_POSITIONS or searched > MAX_SEARCH * layer.ring_degree:
        return f"maps of {s.height} x {s.width} for {pairs} channel pairs"
    return "" if 2 <= layer.weight_bits <= MAX_WEIGHT_BITS else f"weights of {layer.weight_bits} bits"


def products(layer: Layer) -> int:
    """HE-Pmult, at most; its grid has been checked."""
    if isinstance(layer, CoefficientLayer):
        return layer.most_products
    return sum(p.plan.ciphertexts_in * p.plan.targets * p.plan.diagonals for p in layer.placed)


def excess(layer: Layer, parameters: Parameters) -> str:
    """What a layer asks too much of, "" if nothing; its kernel, grid and products have been checked."""
    if problem := _transform_excess(layer):
        return problem
    slots = max(layer.ciphertexts_in, layer.ciphertexts_out) * parameters.ring_degree
    if slots > MAX_SLOTS:
        return f"messages of {slots} slots"
    size = len(layer.column_steps) * key_bytes(parameters)
    return f"Galois keys of {size} bytes" if size > MAX_KEY_BYTES else ""


def _transform_excess(layer: Layer) -> str:
    if isinstance(layer, CoefficientLayer):
        return ""
    layout, longest = layer.layout, max(layer.transform_lengths)
    if longest > MAX_LENGTH:
        return f"a transform of length {longest}"
    cells = max(layout.blocks_in, layout.blocks_out) * layout.shape.groups * layout.tiles
    return f"transforms of {cells * layout.cell} values" if cells * layout.cell > MAX_SPECTRUM else ""

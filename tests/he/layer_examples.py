"""Any linear layer there can be: Hypothesis strategies for shapes, plans and covers of a layer's grid."""

from hypothesis import strategies as st

from privcirnet.he.layers.bsgs import BsgsPlan, copy_counts, powers_of_two
from privcirnet.he.layers.shape import LinearShape, Window
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.planner import counted_goal, plan_layer


@st.composite
def plans(draw: st.DrawFn, lanes: int, p: int, q: int) -> BsgsPlan:
    """Any plan of a q x p matrix over that many lanes."""
    copies = draw(st.sampled_from(copy_counts(lanes, p, q)))
    diagonals = BsgsPlan(lanes, p, q, 1, copies).diagonals
    return BsgsPlan(
        lanes, p, q, draw(st.sampled_from(powers_of_two(diagonals))), copies, draw(st.booleans()), draw(st.booleans())
    )


@st.composite
def windows(draw: st.DrawFn, kernels: tuple[int, ...] = (1, 3, 5, 7)) -> Window:
    """Any kernel, stride and zeros, in one case of four other ones behind than ahead."""
    kernel, stride = draw(st.sampled_from(kernels)), draw(st.sampled_from([1, 2, 3]))
    padding = draw(st.integers(0, kernel - 1))
    unlike = draw(st.integers(0, 3)) == 0
    return Window(kernel, stride, padding, draw(st.integers(0, kernel - 1)) if unlike else None)


@st.composite
def grids(draw: st.DrawFn, largest: int, kernels: tuple[int, ...] = (1, 3, 5, 7)) -> tuple[list[int], list[Window]]:
    """Rows and columns of a map, and the windows along both, in half of all cases the same ones."""
    along = [draw(windows(kernels))]
    along.append(along[0] if draw(st.booleans()) else draw(windows(kernels)))
    return [max(draw(st.integers(1, largest)), window.kernel - sum(window.ends)) for window in along], along


def on(sizes: list[int], along: list[Window], into: int, out: int, groups: int = 1) -> LinearShape:
    """The shape of a convolution on a map."""
    return LinearShape.convolution((into, *sizes), out, (along[0], along[1]), groups)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[LinearShape, int]:
    """(shape, block size): windows and sizes by axis, groups, channel counts that blocks need not divide."""
    b, groups = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (8, 1), (1, 3), (2, 2), (1, 7), (3, 2)]))
    sizes, along = draw(grids(9))
    most = max(1, (24 if all(window == Window() for window in along) else 12) // (b * groups))
    whole = [b * groups * draw(st.integers(1, most)) for _ in range(2)]
    missing = b - 1 if groups == 1 else 0  # padded to whole blocks
    channels = (max(b * groups, count - draw(st.integers(0, missing))) for count in whole)
    return on(sizes, along, *channels, groups), b


@st.composite
def grouped_shapes(draw: st.DrawFn, most_groups: int = 7, most_channels: int = 3, largest: int = 12) -> LinearShape:
    """Windows and sizes by axis, groups, channels a group in and out."""
    sizes, along = draw(grids(largest))
    groups = draw(st.integers(1, most_groups))
    inputs, outputs = (groups * draw(st.integers(1, most_channels)) for _ in range(2))
    return on(sizes, along, inputs, outputs, groups)


@st.composite
def depthwise_shapes(draw: st.DrawFn) -> LinearShape:
    """Windows and sizes by axis, channels that are no powers of two."""
    (sizes, along), channels = draw(grids(11, (1, 2, 3, 4, 5))), draw(st.integers(2, 40))
    return on(sizes, along, channels, channels, channels)


@st.composite
def layers(draw: st.DrawFn) -> SpectralLayer:
    """Any shape in any tiles, covered by a few pieces, each with any plan."""
    shape, b = draw(shapes())
    _, height, width = shape.output_shape
    whole = SpectralLayout.whole(shape, b).tile
    tile = draw(st.sampled_from([whole, (height, width), None])) or (
        draw(st.integers(1, height)),
        draw(st.integers(1, width)),
    )
    layout = SpectralLayout(shape, b, tile)
    least = -(-shape.groups // 3), -(-layout.tiles // 3)
    ring_degree = max(64, 1 << (least[0] * least[1] * layout.cell - 1).bit_length() + draw(st.integers(0, 2)))
    pieces = draw(covers(layout, ring_degree, least))
    return SpectralLayer(shape, b, ring_degree, tile, pieces)


@st.composite
def covers(draw: st.DrawFn, layout: SpectralLayout, ring_degree: int, least: tuple[int, int]) -> tuple[Piece, ...]:
    """Pieces of at least ``least`` (groups, tiles), but for the last of each."""
    found: list[Piece] = []
    groups = layout.shape.groups
    while groups:
        most = min(groups, ring_degree // (layout.cell * least[1]))
        gamma = draw(st.integers(min(least[0], groups), most))
        tiles, groups = layout.tiles, groups - gamma
        while tiles:
            tau = draw(st.integers(min(least[1], tiles), min(tiles, ring_degree // (layout.cell * gamma))))
            tiles -= tau
            lanes = draw(
                st.sampled_from(powers_of_two(min(ring_degree // 2, ring_degree // (gamma * tau * layout.cell))))
            )
            plan = draw(plans(lanes, layout.blocks_in, layout.blocks_out))
            choices = plan.baby_steps, plan.copies, plan.giants_on_shares, plan.folds_on_shares
            found.append(Piece(gamma, tau, lanes, *choices))
    return tuple(found)


def paper_layer(shape: LinearShape, block_size: int, ring_degree: int) -> SpectralLayer:
    """The layer with the plan of least HE-Rot + 0.135 HE-Pmult, every sum under encryption."""
    layer = plan_layer(shape, block_size, counted_goal(ring_degree)).layer
    assert isinstance(layer, SpectralLayer)
    return layer

import numpy as np
import pytest

from privcirnet.he.encodings import spectral
from privcirnet.he.encodings.integer import expand_rows
from privcirnet.he.encodings.layout import SpectralLayout
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.engines import cyclic
from privcirnet.he.ring import modular
from tests.he.exchange import random_rows
from tests.he.insecure import insecure_parameters
from tests.he.layers import paper_layer

N = 256


@pytest.mark.parametrize("b", [2, 4, 8])
def test_spectrum_is_b_times_smaller(b: int) -> None:
    shape = LinearShape(4, 4, 32, 16, 3, 1, 1, groups=2)
    t = insecure_parameters(N, {b, 5}).plain_modulus
    sizes = {}
    for size in (1, b):
        layout = SpectralLayout.whole(shape, size)
        spectrum = spectral.weight_spectrum(layout, random_rows(shape, size), t)
        assert spectrum.shape == layout.spectrum_shape == (2, 8 // size, 16 // size, size, 5, 5)
        sizes[size] = spectrum.size
    assert sizes[1] == b * sizes[b]


def test_spectrum_is_the_transform_of_the_circulant_kernel() -> None:
    """By its definition: the sum over first column and taps of w zeta^(...), element by element."""
    shape, b = LinearShape(4, 2, 6, 3, 3, 1, 1), 3
    layout = SpectralLayout.whole(shape, b)
    t, rows = insecure_parameters(N, layout.transform_lengths).plain_modulus, random_rows(shape, b)
    spectrum = spectral.weight_spectrum(layout, rows, t)[0]
    dense = expand_rows(rows, b)
    lengths = (b, *layout.extent)
    assert lengths == (3, 5, 3)
    impulses = np.zeros(lengths, dtype=np.uint64)
    for p in range(2):
        impulses[...] = 0
        for i in range(b):
            for r in range(3):
                for s in range(3):
                    w = np.uint64(int(dense[i, p * b, r, s]) % t)
                    place = i, (1 - r) % lengths[1], (1 - s) % lengths[2]
                    impulses[place] = modular.add(impulses[place][None], w[None], t)[0]
        expected = impulses
        for axis in range(3):
            expected = cyclic.cyclic(expected, axis, t)
        assert (spectrum[0, p] == expected).all()


def test_block_size_1_with_a_kernel_is_neujeans() -> None:
    """The image axes only are transformed; a kernel with one tap in the middle has a flat spectrum."""
    shape = LinearShape(4, 6, 2, 3, 3, 1, 1)
    layout = SpectralLayout.whole(shape, 1)
    assert layout.transformed_axes == [-2, -1]
    t = insecure_parameters(N, layout.transform_lengths).plain_modulus
    rows = np.zeros((3, 2, 3, 3), dtype=np.int64)
    rows[..., 1, 1] = np.arange(6).reshape(3, 2)
    spectrum = spectral.weight_spectrum(layout, rows, t)
    assert spectrum.shape == (1, 3, 2, 1, 5, 7)
    assert (spectrum[0] == np.arange(6, dtype=np.uint64).reshape(3, 2, 1, 1, 1)).all()
    found = paper_layer(LinearShape(16, 16, 128, 128, 3, 1, 1), 1, 8192).placed[0].plan
    assert min(found.baby_steps, found.giant_steps) > 1, "baby and giant steps"

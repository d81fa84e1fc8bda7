import numpy as np

from privcirnet.he.encodings import spectral
from privcirnet.he.encodings.integer import expand_rows
from privcirnet.he.encodings.layout import SpectralLayout
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.engines import cyclic
from privcirnet.he.ring import modular
from tests.he.exchange import random_rows
from tests.he.insecure import insecure_parameters

N = 256


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

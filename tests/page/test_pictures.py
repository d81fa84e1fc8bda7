"""Pictures of bytes."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from privcirnet.he.rlwe.kernels import wire_bytes
from privcirnet.page.content import ciphertext_picture, for_canvas, png


@pytest.mark.parametrize(("count", "side"), [(8192, 64), (4096, 64), (100, 10), (3, 1), (0, 0)])
def test_a_ciphertext_is_drawn_by_the_highest_bits_of_its_first_coefficients(count, side):
    values = np.random.default_rng(0).integers(0, 1 << 54, (2, count), dtype=np.uint64)
    drawn = ciphertext_picture(wire_bytes.pack(values, (54, 54)), (54, 54))
    wanted = (values[0, : side * side] >> np.uint64(46)).reshape(side, side)
    assert drawn.shape == (side, side)
    assert np.array_equal(drawn, wanted)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_arrive_as_they_are(channels):
    pixels = np.random.default_rng(0).integers(0, 17, (channels, 4, 5), dtype=np.uint8)
    wanted = np.round(pixels * 255.0 / 16 - 0.5).clip(0).astype(np.uint8)
    found = for_canvas(pixels, 16)
    octets = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8).reshape(4, 5, channels)
    stored = np.asarray(Image.open(io.BytesIO(png(pixels, 16)))).reshape(4, 5, channels)
    assert (found["width"], found["height"], found["channels"]) == (5, 4, channels)
    assert np.abs(octets.transpose(2, 0, 1).astype(int) - wanted.astype(int)).max() <= 1
    assert np.array_equal(octets, stored)

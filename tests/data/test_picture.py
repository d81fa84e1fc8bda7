"""Any picture becomes a network's pixels as the files of its data set do, and what was done is said."""

import io
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from privcirnet.data import images
from privcirnet.data.picture import Preparation
from privcirnet.errors import RuleError
from tests.data import samples

COLOUR = Preparation((3, 10, 10), 255)
DIGITS = Preparation((1, 8, 8), 16, light_on_dark=True)


def saved(picture: Image.Image, kind: str = "png", **options) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def ramp(width: int = 40, height: int = 20) -> Image.Image:
    """Red grows to the right, green downwards."""
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.zeros_like(red)], -1).astype(np.uint8))


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp", "tiff", "gif", "ppm"])
def test_a_file_becomes_the_pixels_that_the_data_sets_reader_makes(kind):
    content = saved(ramp(), kind)
    found = COLOUR.prepare(content)
    assert np.array_equal(found.pixels, images.decode_image(content, "x", 10))
    assert found.pixels.dtype == np.int64
    assert found.steps[0].endswith(" file of 40 × 20 pixels")
    words = "resized so that its shorter side has 10 pixels (bicubic)", "cropped to the 10 × 10 pixels in the middle"
    assert found.steps[-2:] == words


def test_nothing_is_done_to_an_image_of_the_data_set():
    pixels = samples.pixels("square", shape=(3, 10, 10))
    found = COLOUR.prepare(saved(Image.fromarray(pixels.transpose(1, 2, 0))))
    assert np.array_equal(found.pixels, pixels)
    assert found.steps == ("PNG file of 10 × 10 pixels",)


def test_what_the_decoder_did_is_said():
    picture, exif = ramp(20, 20).convert("RGBA"), Image.Exif()
    exif[0x0112] = 6
    words = "laid on white where it was transparent", "turned upright as its camera says"
    assert COLOUR.prepare(saved(picture, exif=exif)).steps[1:3] == words


@pytest.mark.parametrize("dark", [True, False])
def test_a_digit_on_paper_is_inverted_and_one_on_a_dark_ground_is_not(dark):
    drawn = np.zeros((16, 16), np.uint8)
    drawn[4:12, 7:9] = 255
    found = DIGITS.prepare(saved(Image.fromarray(drawn if dark else 255 - drawn)))
    assert ("inverted, because the data set has light strokes on a dark ground" in found.steps) is not dark
    assert "rounded to 17 levels" in found.steps
    assert found.pixels.shape == (1, 8, 8)
    assert (found.pixels.min(), found.pixels[0, 4, 3] > 8, found.pixels.max() <= 16) == (0, True, True)


def test_a_narrow_picture_does_not_grow_absurdly():
    """Resized as a whole, it would have 3 billion pixels."""
    assert (Preparation((3, 32, 32), 255).prepare(saved(Image.new("1", (1, 3_000_000), 1))).pixels == 255).all()


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_damaged_files_are_images_or_one_line():
    """Any byte of any header changed: never another error."""
    exif = Image.Exif()
    exif[0x0112] = 3
    random = np.random.default_rng(0)
    for kind in ("png", "jpeg", "webp", "bmp", "tiff", "gif", "ppm"):
        options = {"exif": exif} if kind in ("png", "jpeg", "webp", "tiff") else {}
        whole = saved(ramp(), kind, **options)
        for _ in range(150):
            content = bytearray(whole)
            for place in random.integers(0, min(len(whole), 300), 3):
                content[place] = random.integers(256)
            with suppress(RuleError):
                assert COLOUR.prepare(bytes(content)).pixels.shape == (3, 10, 10)


@pytest.mark.parametrize(("shape", "levels"), [((4, 8, 8), 255), ((3, 8, 9), 255), ((1, 8, 8), 256), ((1, 8, 8), 0)])
def test_a_network_that_no_picture_fits_is_refused(shape, levels):
    with pytest.raises(RuleError, match=r"a picture can become 1 or 3 square channels of pixels in \[0, 255\]: got "):
        Preparation(shape, levels)

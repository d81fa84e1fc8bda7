"""One image file becomes what is seen, whatever its format and numbers are; everything else is one line."""

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageFile, ImageOps, JpegImagePlugin

from privcirnet.data import images, picture
from privcirnet.data.picture import Preparation
from privcirnet.errors import RuleError

SIDE = 16
RAMP = np.tile(np.linspace(0, 1, SIDE), (SIDE, 1))
GREY = np.rint(RAMP * 255).astype(np.uint8)
COLOUR = np.stack([GREY, 255 - GREY, np.full_like(GREY, 128)], -1)
ALPHA = np.where(np.arange(SIDE)[:, None] < SIDE // 2, 255, 0).astype(np.uint8) * np.ones((SIDE, SIDE), np.uint8)
SIXTEEN = np.rint(RAMP * 65535).astype(np.uint16)
WHITE_IS_ZERO = {262: 0}
TURNS = {
    1: lambda seen: seen,
    2: np.fliplr,
    3: lambda seen: np.rot90(seen, 2),
    4: np.flipud,
    5: lambda seen: np.rot90(np.fliplr(seen)),
    6: np.rot90,
    7: lambda seen: np.rot90(np.flipud(seen)),
    8: lambda seen: np.rot90(seen, -1),
}
"""What a camera stores of what is seen, by EXIF's orientation."""


def saved(picture: Image.Image | np.ndarray, kind: str = "png", **options) -> bytes:
    stream = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(stream, kind, **options)
    return stream.getvalue()


def on_white(pixels: np.ndarray) -> np.ndarray:
    return np.where(ALPHA.reshape(SIDE, SIDE, *[1] * (pixels.ndim - 2)) == 255, pixels, 255)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def netpbm(head: bytes, values: np.ndarray) -> bytes:
    return head + b" 16 16 65535\n" + values.astype(">u2").tobytes()


def twelve_bits() -> bytes:
    """Pillow writes none: two numbers in three bytes."""
    first, second = np.rint(RAMP * 4095).astype(np.uint16).reshape(-1, 2).T
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], -1).astype(np.uint8).tobytes()
    tags = {256: SIDE, 257: SIDE, 258: 12, 259: 1, 262: 1, 273: 8 + 2 + 12 * 9 + 4, 277: 1, 278: SIDE, 279: len(packed)}
    return tiff(tags, packed)


def tiff(tags: dict[int, int], content: bytes) -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + content


def palette(transparent: bool) -> Image.Image:
    found = Image.fromarray(np.where(ALPHA == 255, 1, 0).astype(np.uint8), "P")
    found.putpalette([10, 20, 30, 200, 100, 50])
    if transparent:
        found.info["transparency"] = 0
    return found


PALETTE = np.where(ALPHA[..., None] == 255, [200, 100, 50], [10, 20, 30])
KEYED = SIXTEEN.copy()
KEYED[0, 0] = 4660
SEEN = {
    "8 bits": (saved(GREY), GREY),
    "1 bit": (saved(Image.fromarray(RAMP > 0.5)), (RAMP > 0.5) * 255),
    "16 bits": (saved(SIXTEEN), GREY),
    "16 bits, tiff": (saved(SIXTEEN, "tiff"), GREY),
    "16 bits, lzw": (saved(SIXTEEN, "tiff", compression="tiff_lzw"), GREY),
    "16 bits, the other byte first": (saved(Image.fromarray(SIXTEEN.astype(">u2")), "tiff"), GREY),
    "16 bits, white is zero": (saved(65535 - SIXTEEN, "tiff", tiffinfo=WHITE_IS_ZERO), GREY),
    "16 bits, one of them transparent": (
        saved(KEYED)[:33] + chunk(b"tRNS", struct.pack(">H", 4660)) + saved(KEYED)[33:],
        np.where(KEYED == 4660, 255, GREY),
    ),
    "16 bits, netpbm": (netpbm(b"P5", SIXTEEN), GREY),
    "16 bits, netpbm, colour": (netpbm(b"P6", np.stack([SIXTEEN, 65535 - SIXTEEN, SIXTEEN], -1)), None),
    "12 bits": (twelve_bits(), GREY),
    "real numbers": (saved(RAMP.astype(np.float32), "tiff"), GREY),
    "real numbers, white is zero": (saved((1 - RAMP).astype(np.float32), "tiff", tiffinfo=WHITE_IS_ZERO), GREY),
    "colour": (saved(COLOUR), COLOUR),
    "colour, transparent": (saved(np.dstack([COLOUR, ALPHA])), on_white(COLOUR)),
    "colour, transparent, webp": (saved(np.dstack([COLOUR, ALPHA]), "webp", lossless=True), on_white(COLOUR)),
    "grey, transparent": (saved(Image.merge("LA", [*map(Image.fromarray, (GREY, ALPHA))])), on_white(GREY)),
    "grey, one of them transparent": (saved(GREY, transparency=17), np.where(GREY == 17, 255, GREY)),
    "palette": (saved(palette(False)), PALETTE),
    "palette, transparent": (saved(palette(True)), on_white(PALETTE)),
    "palette, transparent, gif": (saved(palette(True), "gif", transparency=0), on_white(PALETTE)),
    "cmyk": (saved(Image.fromarray(COLOUR).convert("CMYK"), "tiff"), COLOUR),
    "cmyk, jpeg": (saved(Image.fromarray(COLOUR).convert("CMYK"), "jpeg", quality=100, subsampling=0), COLOUR),
}
SEEN["16 bits, netpbm, colour"] = SEEN["16 bits, netpbm, colour"][0], np.stack([GREY, 255 - GREY, GREY], -1)


@pytest.mark.parametrize("name", SEEN)
def test_a_data_set_and_the_page_see_what_is_there(name):
    content, seen = SEEN[name]
    wanted = np.broadcast_to(seen if seen.ndim == 3 else seen[..., None], (SIDE, SIDE, 3)).transpose(2, 0, 1)
    found = images.decode_image(content, "x")
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert np.array_equal(found, Preparation((3, SIDE, SIDE), 255).prepare(content).pixels)
    grey = Preparation((1, SIDE, SIDE), 255).prepare(content).pixels
    assert np.array_equal(grey[0], np.asarray(Image.fromarray(found.transpose(1, 2, 0)).convert("L")))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("jpeg", {"quality": 100, "subsampling": 0}),
        ("png", {}),
        ("webp", {"lossless": True}),
        ("tiff", {}),
        ("tiff", {"compression": "tiff_lzw"}),
    ],
)
@pytest.mark.parametrize("orientation", TURNS)
def test_a_camera_s_picture_is_upright(kind, options, orientation):
    """Of pictures that are higher than wide, so that a turn changes their size."""
    seen, exif = COLOUR[:, :10], Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    content = saved(np.ascontiguousarray(TURNS[orientation](seen)), kind, exif=exif, **options)
    found = images.decode_image(content, "x").transpose(1, 2, 0)
    assert found.shape == seen.shape
    assert np.abs(found.astype(int) - seen).max() <= 3


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (saved((RAMP * 2).astype(np.float32), "tiff"), "0 to 2"),
        (saved((RAMP - 1).astype(np.float32), "tiff"), "-1 to 0"),
        (saved(np.full((4, 4), np.nan, np.float32), "tiff"), "nan to nan"),
        (saved(SIXTEEN.astype(np.int32), "tiff"), "integers of 32 bits"),
    ],
)
def test_other_numbers_are_refused(content, got):
    rule = r"pixels must be integers of 8 or 16 bits, or real numbers in \[0, 1\]"
    with pytest.raises(RuleError, match=rf"{rule}: got a.tif \({got}.*\); save the picture with 8 bits, or remove"):
        images.decode_image(content, "a.tif")


def damaged() -> Iterator[bytes]:
    """Every byte of EXIF's tables is another one."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation], exif[ExifTags.Base.DateTime] = 6, "2020"
    exif[ExifTags.Base.ExposureTime], exif[ExifTags.Base.XResolution] = (1, 50), 72.0
    for kind in ("jpeg", "webp", "tiff"):
        whole = saved(COLOUR, kind, exif=exif)
        start = max(whole.find(b"II*\0"), whole.find(b"MM\0*"))
        for place in range(start, min(start + 90, len(whole))):
            for value in (2, 5, 10, 12):
                yield whole[:place] + bytes([value]) + whole[place + 1 :]


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_damaged_exif_is_an_image_or_one_line():
    """Turned upright by Pillow, some of these raised TypeError, AttributeError and struct.error."""
    decoded = 0
    for content in damaged():
        try:
            decoded += picture.decode(content).picture.size == (SIDE, SIDE)
        except RuleError:
            continue
    assert decoded > 100


@pytest.mark.parametrize("place", [23, 25])
def test_a_turn_needs_no_other_field_of_exif(place):
    """Where Pillow cannot write the fields beside the orientation again."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation], exif[ExifTags.Base.DateTime], exif[ExifTags.Base.XResolution] = 6, "2020", 72.0
    content = bytearray(saved(COLOUR[:, :10], "jpeg", exif=exif))
    content[max(content.find(b"II*\0"), content.find(b"MM\0*")) + place] = 2
    with pytest.raises((struct.error, TypeError)):
        ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    assert picture.decode(bytes(content)).picture.size == (16, 10)


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), struct.error("x"), MemoryError(), OverflowError("x")])
def test_whatever_a_parser_raises_is_one_line(monkeypatch, error):
    def load(self):
        raise error

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(RuleError, match=r"an image file must be whole: got .+; use a file of JPEG, PNG"):
        picture.decode(saved(GREY))


@pytest.mark.parametrize(
    "content", [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_other_formats_are_not_opened(content):
    with pytest.raises(RuleError, match="an image file must be whole: got not an image"):
        picture.decode(content)


@pytest.fixture
def nothing_decoded(monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was decoded"))


def huge(width: int, height: int, kind: bytes = b"png") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(8192, 8192), (5793, 5793), (1, 2**25 + 1)])
def test_too_many_pixels_are_refused_before_they_are_decoded(nothing_decoded, size):
    rule = rf"an image must have at most 33,554,432 pixels: got {size[0]} x {size[1]} pixels; make the picture smaller"
    with pytest.raises(RuleError, match=rule):
        picture.decode(huge(*size))


def test_a_small_image_in_a_huge_tile_is_refused(nothing_decoded):
    """Of a deflated file of 0.3 MB, 16384 x 16384 pixels in one tile took 0.3 GB."""
    tags = {256: 10, 257: 10, 258: 8, 259: 8, 262: 1, 277: 1, 322: 16384, 323: 16384, 324: 200, 325: 9}
    with pytest.raises(RuleError, match="got 16384 x 16384 pixels in a tile; make the picture smaller"):
        picture.decode(tiff(tags, bytes(100)))


def test_a_jpeg_file_of_endless_scans_is_refused(nothing_decoded):
    """A scan of some bytes takes as long as all pixels do; usual progressive files have ten."""
    whole = saved(COLOUR, "jpeg", progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    with pytest.raises(RuleError, match=r"a JPEG file must have at most 500 scans: got \d+; save the picture anew"):
        picture.decode(whole[:-2] + last * 500 + whole[-2:])


@pytest.mark.parametrize("name", [b"iCCP", b"zTXt"])
def test_a_chunk_that_inflates_is_refused(name):
    """Pillow's limit: 1 MB."""
    content = saved(GREY)
    bomb = chunk(name, b"a\0\0" + zlib.compress(bytes(1 << 26)))
    with pytest.raises(RuleError, match="an image file must be whole: got Decompressed data too large"):
        picture.decode(content[:33] + bomb + content[33:])


def test_the_first_of_several_images_is_decoded():
    others = [Image.fromarray(255 - COLOUR)] * 3
    for kind in ("png", "webp"):
        content = saved(COLOUR, kind, save_all=True, append_images=others, lossless=True)
        assert np.array_equal(images.decode_image(content, "x"), COLOUR.transpose(2, 0, 1))


def test_every_format_of_a_photograph_is_a_jpeg():
    """Phones store several images in one file, which Pillow calls MPO."""
    content = saved(COLOUR, "mpo", save_all=True, append_images=[Image.fromarray(COLOUR)], quality=100, subsampling=0)
    assert isinstance(Image.open(io.BytesIO(content)), JpegImagePlugin.JpegImageFile)
    assert np.abs(images.decode_image(content, "x").astype(int) - COLOUR.transpose(2, 0, 1)).max() <= 3

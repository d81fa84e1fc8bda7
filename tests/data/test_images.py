"""Image files decoded, resized, or refused."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from privcirnet.data import images, picture
from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import loaded


def test_images_are_resized_and_cropped(tmp_path):
    """A bright column in the middle of a wide image stays in the middle; what is left and right is cut."""
    wide = np.zeros((3, 20, 60), np.uint8)
    wide[:, :, 29:31], wide[0, :, :18], wide[0, :, -18:] = 255, 200, 200
    for part in ("train", "val"):
        samples.write_image(tmp_path / part / "a" / "wide.png", wide)
        samples.write_image(tmp_path / part / "a" / "tall.PNG", wide.transpose(0, 2, 1))
        samples.write_image(tmp_path / part / "b" / "z.png", samples.pixels("square", shape=(3, 10, 10)))
    data = loaded("imagefolder", tmp_path, size=10)
    tall, across, square = data.train_images
    assert data.train_images.shape == (3, 3, 10, 10)
    assert torch.equal(tall.transpose(1, 2), across)
    assert across[0].max(0).values.tolist() == across[0].min(0).values.tolist()
    assert across[0, 0].argmax().item() in (4, 5)
    assert torch.equal(across[0, 0], across[0, 0].flip(0))
    assert across[0, 0, 0] == 0
    assert np.array_equal(square.numpy(), samples.pixels("square", shape=(3, 10, 10)))
    with pytest.raises(RuleError, match=r"images must have one size: got .* x .* before; set data.size to"):
        loaded("imagefolder", tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", None])
@pytest.mark.parametrize("packed", [True, False])
def test_a_broken_image_is_named(tmp_path, content, packed):
    samples.write_folders(tmp_path / "x", ("a", "b"), shape=(3, 32, 32))
    broken = tmp_path / "x" / "train" / "b" / "1.png"
    broken.write_bytes(broken.read_bytes()[:-600] if content is None else content)
    root = samples.pack(tmp_path / "x", tmp_path / "x.tar") if packed else tmp_path / "x"
    with pytest.raises(
        RuleError, match=r"an image file must be whole: got train/b/1.png \([^\n]+\); use a file of .*, or remove"
    ):
        loaded("imagefolder", root)


def test_an_absurdly_large_image_is_refused(monkeypatch):
    monkeypatch.setattr(picture, "MOST_PIXELS", 99)
    content = io.BytesIO()
    Image.new("RGB", (10, 10)).save(content, "png")
    with pytest.raises(
        RuleError, match=r"at most 99 pixels: got big.png \(10 x 10 pixels\); make the .*, or remove the"
    ):
        images.decode_image(content.getvalue(), "big.png")

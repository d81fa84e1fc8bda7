"""Rows of NumPy's files as inputs: in order, each by its number, read when asked for, refused where they do not fit."""

import io

import fsspec
import numpy as np
import pytest

from privcirnet.data.arrays import Arrays, is_array
from privcirnet.data.pictures import Listing, read_ahead
from privcirnet.errors import RuleError
from privcirnet.he.program.program import PixelRange
from privcirnet.runs.arrays import ArrayPreparation, integers_of

RANGE = PixelRange((2, 1, 3), -8, 7, log_step=-2)
SIGNALS = np.arange(-6.0, 12.0).reshape(3, 2, 3) / 8


def saved(folder, array, name="new.npy"):
    np.save(folder / name, array)
    return str(folder / name)


def test_rows_are_a_program_s_integers_in_order(tmp_path):
    source = saved(tmp_path, SIGNALS.astype(np.float32))
    assert is_array(source)
    assert not is_array(str(tmp_path))
    arrays = Arrays(source)
    pictures = list(read_ahead(arrays, Listing(arrays, {f"{source}[0]"}), ArrayPreparation(RANGE)))
    assert [picture.path for picture in pictures] == [f"{source}[1]", f"{source}[2]"]
    assert pictures[0].pixels.tolist() == [[[0, 1, 1]], [[2, 2, 3]]]
    assert pictures[0].pixels.dtype == np.int64


def test_a_store_is_read_as_well():
    content = io.BytesIO()
    np.save(content, SIGNALS)
    fsspec.filesystem("memory").pipe("/arrays/new.npy", content.getvalue())
    arrays = Arrays("memory://arrays/new.npy")
    assert [file.path.rpartition("[")[2] for file in arrays.files()] == ["0]", "1]", "2]"]


def test_each_row_is_refused_by_itself(tmp_path):
    wide = SIGNALS.copy()
    wide[1, 0, 0] = 2.0
    arrays = Arrays(saved(tmp_path, wide))
    pictures = list(read_ahead(arrays, Listing(arrays), ArrayPreparation(RANGE)))
    assert [picture.pixels is None for picture in pictures] == [False, True, False]
    assert "pixels must be in [-2, 1.75], as compiled: got [0.125, 2]" in pictures[1].refused
    other = Arrays(saved(tmp_path, SIGNALS[:, :, :2], "short.npy"))
    (first, *_) = read_ahead(other, Listing(other), ArrayPreparation(RANGE))
    assert "images must be (N, 2, 1, 3), as compiled: got shape (1, 2, 2)" in first.refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros(3), r"an array of numbers with rows: got float64 \(3,\)"),
        (np.zeros((0, 3)), r"with rows: got float64 \(0, 3\)"),
        (np.array([["a", "b"]]), r"array of numbers with rows: got <U1"),
        (np.array([[{}]]), "array of numbers with rows: got .*new.npy: "),
    ],
    ids=["one axis", "no row", "words", "objects"],
)
def test_what_is_no_array_of_inputs_is_refused_before_anything_runs(tmp_path, content, message):
    np.save(tmp_path / "new.npy", content, allow_pickle=True)
    with pytest.raises(RuleError, match=message):
        Arrays(str(tmp_path / "new.npy"))


def test_a_file_that_is_damaged_or_missing(tmp_path):
    (tmp_path / "new.npy").write_bytes(b"nothing")
    with pytest.raises(RuleError, match="must be an array of numbers with rows"):
        Arrays(str(tmp_path / "new.npy"))
    with pytest.raises(RuleError, match=r"images= must be .* nothing is there"):
        Arrays(str(tmp_path / "none.npy"))


def test_one_signal_of_one_channel_is_a_batch():
    """Its shape (1, 1, L) is that of an image without a batch, too."""
    pixels = PixelRange((1, 1, 3), -8, 7, log_step=-2)
    assert integers_of(pixels, np.ones((1, 1, 3))).tolist() == [[[[4, 4, 4]]]]
    with pytest.raises(RuleError, match="must have a batch axis"):
        integers_of(pixels, np.ones((1, 3)))


def test_channels_of_several_units():
    pixels = RANGE._replace(exponents=(0, -3))
    integers = integers_of(pixels, np.full((1, 2, 3), 0.125))
    assert integers[0, :, 0].tolist() == [[1, 1, 1], [4, 4, 4]]

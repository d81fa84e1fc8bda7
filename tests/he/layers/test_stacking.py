"""Several images as a tall one: the same layer on it gives every image's result."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.layers.layer import join, pitch, repeated, split, stacked_shape
from privcirnet.he.layers.shape import LinearShape
from tests.he.exchange import random_input, random_rows, slow_layer
from tests.he.layer_examples import depthwise_shapes, shapes

ANY_SHAPE = st.one_of(shapes(), depthwise_shapes().map(lambda shape: (shape, 1)))


@given(ANY_SHAPE, st.integers(2, 8), st.data())
def test_every_image_has_its_own_result(case: tuple[LinearShape, int], images: int, data: st.DataObject) -> None:
    (shape, b), count = case, data.draw(st.integers(1, images))
    rows, bias = random_rows(shape, b), np.arange(shape.out_channels)
    single = [random_input(shape, seed) for seed in range(count)]
    joined = join(shape, images, [x.astype(np.uint64) for x in single]).astype(np.int64)
    assert joined.shape == stacked_shape(shape, images).input_shape
    results = split(shape, count, slow_layer(stacked_shape(shape, images), b, rows, bias, joined).astype(np.uint64))
    for x, y in zip(single, results.astype(np.int64), strict=True):
        assert np.array_equal(slow_layer(shape, b, rows, bias, x), y)


@given(ANY_SHAPE, st.integers(2, 8))
def test_what_is_repeated_stands_where_each_result_is(case: tuple[LinearShape, int], images: int) -> None:
    shape = case[0]
    y = np.random.default_rng(0).integers(-9, 9, shape.output_shape)
    whole = repeated(shape, images, y)
    assert whole.shape == stacked_shape(shape, images).output_shape
    assert all(np.array_equal(y, one) for one in split(shape, images, whole))
    assert np.abs(whole).sum() == images * np.abs(y).sum()


def test_no_row_is_lost_where_windows_do_not_reach_over() -> None:
    assert stacked_shape(LinearShape.gemm(65, 8, 8), 3) == LinearShape.gemm(195, 8, 8)
    assert [pitch(LinearShape(4, 4, 8, 8, 3, stride, 1)) for stride in (1, 2, 3)] == [5, 6, 6], "whole strides apart"

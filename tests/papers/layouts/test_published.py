"""Coefficient encodings as their papers publish them: the printed counts, and that they compute the layer."""

from dataclasses import replace

import pytest

from papers.layouts.named import published_named
from papers.layouts.published import PublishedLayer
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from tests.he.exchange import Party, random_input, random_rows, slow_convolution
from tests.he.insecure import insecure_parameters

GEMM, CONV = LinearShape.gemm(512, 768, 3072), LinearShape(16, 16, 128, 128, 3, 1, 1)
DEPTHWISE = LinearShape(14, 14, 576, 576, 3, 1, 1, 576)


def counts(encoding, shape, n):
    layer = published_named(encoding, shape, 1, n)
    return layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out


def test_cheetah_s_counts_are_those_that_privcirnet_prints():
    """The convolution's 134 ciphertexts are those at n = 8192, its 1408 products those at n = 4096."""
    assert counts("cheetah", GEMM, 8192) == (147456, 48, 3072)
    assert counts("cheetah", CONV, 8192) == (768, 6, 128)
    assert counts("cheetah", CONV, 4096) == (1408, 11, 128)


def test_falcon_s_account_of_the_depthwise_layer():
    """Iron: C polynomials each way; Cheetah: C / 16 up, for 16 padded maps fill one. Table III has their bytes."""
    found = {name: published_named(name, DEPTHWISE, 1, 4096) for name in ("iron", "cheetah")}
    sent = {name: (layer.ciphertexts_in, layer.ciphertexts_out) for name, layer in found.items()}
    assert sent == {"iron": (576, 576), "cheetah": (36, 576)}


@pytest.mark.parametrize("encoding", ["cheetah", "iron"])
@pytest.mark.parametrize(
    "shape",
    [
        LinearShape(6, 5, 7, 4, 3, 1, 1),
        LinearShape(5, 6, 6, 6, 3, 1, 1, 3),
        LinearShape(20, 19, 2, 3, 3, 1, 1),
        LinearShape.gemm(10, 12, 8),
    ],
    ids=["dense", "groups", "tiles", "gemm"],
)
def test_it_computes_the_layer(encoding, shape):
    layer = published_named(encoding, shape, 1, 256)
    assert isinstance(layer, PublishedLayer)
    weight, x = random_rows(shape, 1), random_input(shape)
    exchange = Party(layer, weight, None, insecure_parameters(256), engine="cleartext")
    assert (exchange.run(x) == slow_convolution(shape, weight, x)).all()
    assert exchange.server.counts["pmult"] == layer.pmults == layer.most_products
    assert len(layer.placement.inputs) * layer.placement.grid.tiles == layer.ciphertexts_in
    assert len(layer.placement.outputs) * layer.placement.grid.tiles == layer.ciphertexts_out


def test_a_stride_is_refused():
    with pytest.raises(RuleError, match="a published plan has stride 1: got 2; use layout=best"):
        published_named("iron", replace(CONV, stride=2), 1, 8192)

import pytest

from benchmarks.bench.layers import Entry, bench_layer, bench_layers
from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, choose, message_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from tests.he.layer_examples import paper_layer

CONV = paper_layer(LinearShape(16, 16, 64, 64, 3, 1, 1), 8, 8192)
SMALL = paper_layer(LinearShape(8, 8, 64, 64, 3, 1, 1), 4, 8192)
DEPTHWISE = paper_layer(LinearShape(14, 14, 48, 48, 3, 1, 1, groups=48), 1, 8192)
TOKENS = paper_layer(LinearShape.gemm(65, 32, 32), 2, 8192)


@pytest.mark.parametrize("layer", [CONV, SMALL, DEPTHWISE, TOKENS], ids=["b8", "b4", "depthwise", "tokens"])
@pytest.mark.parametrize("engine", ["cleartext", "tenseal"])
def test_counts_bytes_and_exactness(layer: SpectralLayer, engine: str) -> None:
    ticks: list[None] = []
    found = bench_layer(layer, engine, 41, repetitions=2, progress=lambda: ticks.append(None))
    assert found.max_abs_error == 0
    assert (found.rotations, found.pmults) == (layer.rotations, layer.pmults)
    assert len(found.timings) == 2
    assert len(ticks) == 3, "and a run to warm up"
    assert all(second > 0 for timing in found.timings for second in timing)
    if engine == "tenseal":
        up, down = message_bytes(choose(layer.transform_lengths, 41), SEAL_SEED_BYTES)
        assert (found.bytes_up, found.bytes_down) == (layer.ciphertexts_in * up, layer.ciphertexts_out * down)
    else:
        assert (found.bytes_up, found.bytes_down) == (layer.ciphertexts_in * 8 * 8192, layer.ciphertexts_out * 8 * 8192)


def test_the_papers_set_runs_under_its_own_table_only() -> None:
    """SEAL's default primes, 218 bits, which the table of 2018 allows."""
    entry, papers = {"": Entry(SMALL, "tenseal")}, (43, 43, 44, 44, 44)
    assert bench_layers(entry, 41, papers, 1, table="2018")[""].max_abs_error == 0
    with pytest.raises(RuleError, match="log2 q must be at most 214 at ring degree 8192"):
        bench_layers(entry, 41, papers, 1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuleError, match="engine must be a known one"):
        bench_layer(SMALL, "other", 41)
    with pytest.raises(RuleError, match="at most 60 bits"):
        bench_layer(SMALL, "cleartext", 61)
    with pytest.raises(RuleError, match=r"noise budget: got .* in layer bench with a 55-bit"):
        bench_layer(SMALL, "cleartext", 55, coefficient_bits=(50, 50, 50))

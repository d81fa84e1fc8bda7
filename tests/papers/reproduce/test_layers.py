"""Layers of cells: bytes are those of real messages; measured functions put their parts together as they say."""

import pytest

from benchmarks.bench.layers import LayerBenchmark, bench_layer
from benchmarks.bench.networks import network_shapes
from benchmarks.bench.runs import SHAPES
from papers.reproduce import ckks, counts, ensei, seconds, trained
from papers.reproduce.layers import LayerCase
from privcirnet.errors import RuleError
from privcirnet.he.ckks.slotwise import Layout
from tests.data.test_real import ARCHIVES

CASES = {
    "depthwise": LayerCase(conv=[8, 8, 32, 32, 3], groups=32, encoding="falcon", n=4096),
    "cheetah": LayerCase(conv=[8, 8, 24, 40, 3], encoding="cheetah", n=4096, t_bits=26),
    "circulant": LayerCase(gemm=[64, 64, 128], b=8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bytes_and_counts_are_those_of_a_run(name):
    case = CASES[name]
    found = bench_layer(case.layer, "kernel", case.plain_bits, case.primes, repetitions=1)
    assert (found.bytes_up, found.bytes_down) == case.message_bytes
    assert (found.pmults, found.rotations) == case.counts[:2]
    assert found.max_abs_error == 0
    assert case.counts == (
        case.layer.pmults,
        case.layer.rotations,
        case.layer.ciphertexts_in,
        case.layer.ciphertexts_out,
    )


def test_the_published_plan_and_a_gemm_s_tile():
    published = LayerCase(conv=[16, 16, 128, 128, 3], layout="published")
    assert published.counts == (1024, 48, 8, 8)
    gemm = LayerCase(gemm=[32, 48, 56], encoding="cheetah", n=4096)
    layer = gemm.layer
    assert gemm.counts == (layer.pmults, 0, layer.ciphertexts_in, layer.ciphertexts_out)


def test_ensei_s_own_ring_is_for_bytes_alone():
    case = LayerCase(conv=[32, 32, 32, 32, 3], encoding="ensei", n=2048)
    assert case.message_bytes == (32 * (2048 * 60 // 8 + 32), 32 * 2048 * (27 + 32) // 8)
    assert case.layer.rotations == 0
    with pytest.raises(RuleError, match="log2 q must be at most 53 at ring degree 2048 for 128-bit security: got 120"):
        _ = case.parameters


@pytest.mark.slow
def test_a_layer_is_set_up_in_some_time():
    assert seconds.layer_setup(conv=[4, 4, 2, 2, 3])["setup"] > 0


def test_the_modulus_of_a_transform_carries_the_largest_output():
    found = counts.transform_modulus(8, 1, channels=32, taps=9, n=2048)["p_N"]
    assert found == 147457  # 36 * 4096 + 1
    assert found > 2 * 255 * 32 * 9 > found - 4096


def test_the_printed_moduli_are_wrong_and_ours_are_not():
    """In clear, on a small map; benchmarks/ensei.py runs them encrypted."""
    small = {"bits": [8, 1], "engine": "cleartext"}
    printed = ensei.wrong_outputs([5, 5, 1, 2, 3], n=2048, moduli=[2311, 2311, 12289], **small)
    assert printed["wrong outputs"] > 95
    right = ensei.wrong_outputs([5, 5, 2, 2, 3], n=2048, **small)
    assert right["wrong outputs"] == 0
    assert right["p_N"] == right["p_A"] == right["p_E"]
    assert right["p_N"] % 6 == right["p_N"] % 4096 == 1


@pytest.mark.slow
def test_depthwise_layers_have_a_least_and_a_most_saving(monkeypatch):
    layers = [[8, 16, 3], [4, 64, 3]]
    found = counts.depthwise_traffic(layers, "falcon", "cheetah", 4096, "published")
    cases = [dict(conv=[h, h, c, c, r], groups=c, n=4096) for h, c, r in layers]
    ratios = [
        sum(LayerCase(**case, encoding="cheetah", layout="published").message_bytes)
        / sum(LayerCase(**case, encoding="falcon").message_bytes)
        for case in cases
    ]
    assert found == {"traffic, least": min(ratios), "traffic, most": max(ratios)}
    assert found["traffic, most"] > found["traffic, least"] > 1

    def latency(bandwidth, conv, encoding, **case):
        return {"latency": {"falcon": 2.0, "cheetah": float(conv[0])}[encoding]}

    monkeypatch.setattr(seconds, "link_latency", latency)
    found = seconds.depthwise_speedups(layers, 9, {"encoding": "falcon", "n": 4096}, {"encoding": "cheetah"})
    assert found == {"latency, least": 2.0, "latency, most": 4.0}


def test_phases_leave_a_quarter_of_the_ciphertexts_to_bootstrap():
    assert ckks.downsampling(channels=4, width=8) == {"ciphertexts, times fewer": 4}


@pytest.mark.slow
def test_a_ckks_client_is_measured_and_its_result_checked(monkeypatch):
    monkeypatch.setattr(ckks, "_N", 8192)
    found = ckks.client_costs(slices=4, messages=3)
    parts = 8192 * (42 + 54) // 8, 8192 * 54 // 8  # bits of q_1 and q_0, of q_0 alone
    assert found["ciphertext up"] == pytest.approx(3 * parts[0] / 1e6, rel=1e-3)  # a seed for the other polynomial
    assert found["ciphertext down"] == pytest.approx(2 * parts[1] / 1e6, rel=1e-3)
    assert min(found["encryption"], found["decryption"]) > 0
    monkeypatch.setattr(ckks, "_PRECISION", 0.0)
    with pytest.raises(RuleError, match="a decrypted map must be the one that was encrypted: got an error of"):
        ckks.client_costs(slices=4, messages=3)


def test_groups_of_a_network_are_quarters(monkeypatch):
    layers = len(network_shapes("mobilenetv2_cifar"))
    monkeypatch.setattr(seconds, "_network_seconds", lambda network, b: [{1: 1.0, 16: 0.25}[b]] * layers)
    assert seconds.group_latency([1, 1, 1, 1])["latency"] == 32
    assert seconds.group_latency([16, 1, 16, 16])["latency"] == 8 + 24 / 4


def test_speed_ups_are_over_all_layers(monkeypatch):
    found = iter(range(1, 1 + len(SHAPES)))
    fixed = {"b = 8": 1.0, "b = 1": 2.0, "Cheetah, published": 5.0, "Cheetah, ours": 4.0}
    times = {title: fixed | {"Bolt, NeuJeans as published": next(found)} for title in SHAPES}
    monkeypatch.setattr(seconds, "_side_by_side", times.get)
    values = seconds.block_size_speedups(8)
    assert [values[f"Bolt, NeuJeans, {kind}"] for kind in ("least", "mean", "most")] == [1, 4, 7]
    assert values["Cheetah, mean"] == 4
    assert seconds.block_size_speedups(8, "published")["Cheetah, mean"] == 5
    assert values["our b = 1, mean"] == 2


def test_a_wrong_result_ends_a_measurement():
    right, wrong = (LayerBenchmark(0, 0, 0, 0, (), error) for error in (0, 1))
    assert seconds._exact({"a": right}) == {"a": right}
    with pytest.raises(RuleError, match="an encrypted result must be exact: got LayerBenchmark"):
        seconds._exact({"a": right, "b": wrong})


@pytest.mark.slow
def test_a_network_with_random_weights_is_run_encrypted():
    small = {"activation": "aespa", "width": 8, "image_size": 8}
    found = seconds.SECONDS["untrained"](network="minionn_cifar", side=8, classes=2, link="lan", arguments=small)
    assert found["rounds"] == 13  # of both phases: layers that do not wait for each other share messages
    assert found["latency"] == pytest.approx(found["computing"] + found["traffic"] / 384 + 13 * 0.3e-3)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not ARCHIVES.is_dir(), reason="there is no folder of image archives beside the project")
def test_a_committed_network_is_run_encrypted():
    found = trained.inference(str(ARCHIVES), "tutorial_mnist", "mnist")
    assert found["rounds"] == 8
    assert 0.1 < found["traffic"] < 2
    link = found["traffic"] / 9 + 8 * 0.08
    assert found["latency"] == pytest.approx(found["computing"] + link)


def test_an_imagenet_image_in_ckks_is_counted():
    """32 bootstrappings, of which two are of real values: 30 of complex ones; and 2,304 diagonals for each convolution."""
    found = ckks.imagenet()
    assert found["CtoS, ModEval, StoC"] == pytest.approx(30 * 6.9 + 2 * 5.3)
    stage = Layout(64, 64, 32768)
    assert ckks._diagonals(stage, stage, 9) == 2304
    assert found["latency"] == pytest.approx(found["convolutions"] + found["CtoS, ModEval, StoC"])
    assert 16 * 2304 * 10 * 0.43e-3 < found["convolutions"] < 1.3 * 16 * 2304 * 10 * 0.43e-3

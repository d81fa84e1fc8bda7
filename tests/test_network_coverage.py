"""The table of others' networks: some of it measured again, and what it promises."""

import re

import pytest

from benchmarks import network_coverage
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

AS_THEY_ARE = (
    *("torchvision/resnet18", "mobilenetv2_100", "efficientnet_b0", "convnext_atto", "deit_tiny_patch16_224"),
    *("mobilenetv3_small_050", "torchvision/mobilenet_v3_small"),
)
REFUSED = {"efficientvit_b0", "convnextv2_atto"}
"""They divide by values of an image outside of a norm."""

PROMISED = (
    *("resnet18", "mobilenetv2_100", "efficientnet_lite0", "regnetx_002", "repvgg_a0", "vgg11_bn", "densenet121"),
    *("deit_tiny_patch16_224", "torchvision/resnet18", "torchvision/mobilenet_v2"),
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* images go beyond the measured bounds", "ignore:encrypted logits .* off")
@pytest.mark.parametrize("road", ["polynomial", "exact"])
@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050"])
def test_a_network_runs_encrypted(name, road):
    found = network_coverage.examined(name, "cleartext", road)
    assert (found.reason, tuple(found.steps)) == ("", network_coverage.ROADS[road].steps)


def test_a_network_that_does_not_says_why():
    found = network_coverage.examined("mobilevitv2_050", "cleartext", side=64)
    assert found.steps == []
    assert found.reason.startswith("every operation must have a polynomial form: got softmax (softmax)")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* images go beyond the measured bounds", "ignore:encrypted logits .* off")
@pytest.mark.parametrize(
    ("name", "road"), [("semnasnet_075", "readme_polynomials"), ("resnet10t", "readme"), ("resnet18", "readme")]
)
def test_a_network_goes_through_the_lines_of_the_readme(name, road):
    found = network_coverage.examined(name, "cleartext", road)
    assert (found.reason, tuple(found.steps)) == ("", network_coverage.ROADS[road].steps)


def test_a_seed_draws_networks_that_have_a_polynomial_form(monkeypatch):
    monkeypatch.setattr(network_coverage, "_side", lambda name: 32 if name < "n" else "why not")
    drawn, again, other = ([*network_coverage.sampled(5, seed)] for seed in (41, 41, 42))
    assert drawn == again != other
    assert [side for _, side in drawn].count(32) == 5 < len(drawn)
    assert drawn[-1][1] == 32


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vit_small_patch32_224", "must be traceable by torch.fx at its image size: got VisionTransformer"),
        ("vit_huge_patch14_clip_quickgelu_378", "631 million parameters"),
        ("torchvision/regnet_y_8gf", "39 million parameters"),
        ("convnextv2_atto", "every operation must have a polynomial form"),
    ],
)
def test_networks_that_a_sample_leaves_out(name, why):
    assert why in network_coverage._side(name)


def test_the_tables_of_the_page_are_replaced_alone():
    first = network_coverage.written("", "one\n", "a", "polynomial")
    both = network_coverage.written(first, "two\n", "b", "readme")
    assert both == "# Networks of others\n\n`a`\n\none\n\n## The lines of README.md\n\n`b`\n\ntwo\n"
    assert network_coverage.written(both, "one\n", "a", "polynomial") == both
    assert network_coverage.written(both, "two\n", "b", "readme") == both
    assert [*network_coverage.ROADS] == ["polynomial", "exact", "readme", "readme_polynomials"]
    three = network_coverage.written(both, "three\n", "c", "exact")
    assert three == both.replace("\n## The", "\n## As they are\n\n`c`\n\nthree\n\n## The")


def test_the_table_has_every_network_and_most_run():
    parts = (ROOT / "benchmarks" / "coverage.md").read_text().split("\n## ")
    rows, kept = (dict(re.findall(r"^\| (\S+) \| \d+ \|(.*)$", part, re.MULTILINE)) for part in parts[:2])
    assert set(rows) == set(network_coverage.SIDES)
    encrypted = {name for name, cells in rows.items() if cells.count("yes") == len(network_coverage.STEPS)}
    assert encrypted.issuperset(PROMISED)
    assert len(encrypted) >= 15
    assert set(kept).issuperset(AS_THEY_ARE)
    run = {name for name, cells in kept.items() if cells.count("yes") == len(network_coverage.EXACT_STEPS)}
    assert set(kept) - run == REFUSED
    assert len(run) >= 36

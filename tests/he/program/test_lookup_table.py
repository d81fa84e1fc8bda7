"""Tables of functions: their entries are the quantized network's, and what a description may say of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.program import manifest
from privcirnet.he.program.exact import ExactReLU, ExactStep, ExactTruncate
from privcirnet.he.program.lookup_table import ExactTable, tabulated
from privcirnet.he.program.scalar_functions import TABULATED, WITH_NUMBERS
from privcirnet.nn.functional.quantize import quantize_activation
from tests.he.networks import network
from tests.he.program.test_scalar_functions import TORCH as ACTIVATIONS

TORCH = {**ACTIVATIONS, "exp": torch.exp, "reciprocal": torch.reciprocal, "rsqrt": torch.rsqrt}
POSITIVE = {"reciprocal", "rsqrt"}


def test_every_function_is_tested() -> None:
    assert {name.partition("(")[0] for name in TORCH} == {*TABULATED, *WITH_NUMBERS}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("steps", [(-4, -4), (-5, -7), (-3, -12)])
@pytest.mark.parametrize("bits", [4, 8, 12])
def test_entries_are_what_a_quantizer_makes_of_the_function(name: str, steps: tuple[int, int], bits: int) -> None:
    low = 1 if name in POSITIVE else -(1 << bits - 1)
    low, high = max(low, -64 << 3 if name == "exp" else low), min(low + (1 << bits) - 1, 80)
    table = tabulated(name, 3, *steps, low, high)
    x = torch.arange(low, high + 1, dtype=torch.float64) * 2.0 ** steps[0]
    want = quantize_activation(TORCH[name](x), steps[1]) * 2.0 ** -steps[1]
    assert (table.entries == want.numpy()).all()


@pytest.mark.parametrize("name", ["gelu", "exp", "reciprocal"])
def test_values_and_ranges(name: str) -> None:
    table = tabulated(name, 3, -3, -5, 1, 40)
    x = np.arange(-900, 901)
    found = table.values(x)
    places = np.floor(x / 8 + 0.5).clip(1, 40)
    assert (found == np.floor(TABULATED[name].of(places / 8) * 32 + 0.5)).all()
    for low, high in ((-900, 900), (3, 90), (8, 8), (-9, 11)):
        inside = found[(x >= low) & (x <= high)]
        least, most = table.interval(np.array([low]), np.array([high]))
        assert (least[0], most[0]) == (inside.min(), inside.max())


@pytest.mark.parametrize(
    ("low", "high", "bits", "first", "clips"),
    [
        (-64, 59, 4, -8, 0),
        (-64, 60, 5, -8, 0),
        (-4000, -100, 9, -512, 0),
        (-8100, -100, 7, -50, 1),
        (-8200, 60, 7, -50, 1),
        (-8200, 600, 7, -50, 1),
        (-8200, 700, 7, -50, 2),
    ],
)
def test_the_shortest_index_that_holds_a_range(low: int, high: int, bits: int, first: int, clips: int) -> None:
    table = tabulated("gelu", 3, -3, -5, -50, 49).bounded(low, high)
    assert (table.index_bits, table.first, table.clips) == (bits, first, clips)
    assert clips or table.bound >= max(-low, high) + 4
    if clips:
        reach = max(-low - (50 << 3), high + (50 << 3)) + 4
        assert reach < table.bound <= 2 * reach
    index = np.arange(first, first + (1 << bits))
    assert Lookup(12289, table.table).table == tuple(table.values(index << 3).tolist())


def test_functions_without_a_value_are_refused() -> None:
    for name, low in (("reciprocal", 0), ("rsqrt", -1), ("exp", 500)):
        with pytest.raises(DoesNotFit, match="entries must be under 2\\^40"):
            tabulated(name, 3, -3, -5, low, low + 20)


TABLE = tabulated("gelu", 4, -4, -4, -40, 50).bounded(-100, 100)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"function": "cosine"}, "an exact table of cosine"),
        ({"log_step_in": -5}, "at step 2\\^-5"),
        ({"log_step_out": -5}, "an exact table of gelu"),
        ({"bits": 15}, "by 15 bits"),
        ({"bound": 99}, "an exact table of gelu"),
        ({"index_bits": 13}, "an exact table of gelu"),
        ({"high": 1 << 20}, "an exact table of gelu"),
        ({"digest": 1}, "entries of gelu differ"),
        ({"function": "reciprocal"}, "entries must be under"),
        ({"index_bits": 0}, "without a bound"),
        ({"bound": 1 << 29}, "a plain modulus of"),
        ({"clips": 3}, "an exact table of gelu"),
        ({"clips": 2, "bound": 1 << 29}, "a plain modulus that is not 1 mod 2\\^31"),
        ({"clips": 2, "bound": 3 << 10}, "an exact table of gelu"),
        ({"clips": 2, "bound": 1 << 4}, "an exact table of gelu"),
    ],
)
def test_wrong_descriptions_are_refused(changed: dict[str, object], problem: str) -> None:
    program = network(plain_bits=30)
    wrong = replace(TABLE, **changed)  # type: ignore[arg-type]
    nodes = [replace(node, operation=wrong) if node.name == "first_t" else node for node in program.nodes]
    with pytest.raises(RuleError, match=problem):
        manifest.check(replace(program, nodes=tuple(nodes)))


def test_a_description_comes_back() -> None:
    program = network(plain_bits=30)
    nodes = [replace(node, operation=TABLE) if node.name == "first_t" else node for node in program.nodes]
    again = manifest.nodes_from_list(manifest.nodes_to_list(nodes))
    assert isinstance(again[2].operation, ExactTable)
    assert again[2].operation == TABLE


@pytest.mark.parametrize("step", [ExactReLU(4), ExactTruncate(4), tabulated("gelu", 4, -4, -4, -40, 50)], ids=str)
def test_of_a_bound_three_bits_are_public(step: ExactStep) -> None:
    found = [step.bounded(-most, most) for most in range(1040, 2000, 8)]
    assert len(set(found)) <= 9
    assert all(one.bound >= most + 8 for one, most in zip(found, range(1040, 2000, 8), strict=True))

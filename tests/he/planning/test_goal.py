"""The planner's explanation: a line for every candidate, and what the chosen one saves."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import Cost, LayerChoice, Objective, table
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import plan_layer
from privcirnet.he.planning.profile import COUNTED, Profile

MEASURED = Profile("measured", 8192, COUNTED.coefficient_bits, {name: 1e-3 * s for name, s in COUNTED.seconds.items()})
HEADINGS = "encoding tile pieces lanes copies B sums HE-Rot HE-Pmult up down server total".split()
LAYERS = {
    "gemm": (LinearShape.gemm(65, 256, 512), 4),
    "conv": (LinearShape(16, 16, 64, 64, 3, 1, 1), 8),
    "strided": (LinearShape(32, 32, 16, 32, 3, 2, 1), 1),
    "depthwise": (LinearShape(6, 6, 24, 24, 3, 1, 1, 24), 1),
}
GOALS = {
    "counted": Objective(COUNTED, LINKS["local"], "encrypted"),
    "measured": Objective(MEASURED, LINKS["wan"]),
    "shares": Objective(MEASURED, LINKS["lan"], "shares"),
}


@pytest.fixture(scope="module", params=[(layer, goal) for layer in LAYERS for goal in GOALS], ids=" ".join)
def choice(request: pytest.FixtureRequest) -> LayerChoice:
    layer, goal = request.param
    return plan_layer(*LAYERS[layer], GOALS[goal])


def cells(cost: Cost, layer: Layer, scale: float) -> tuple[str, ...]:
    """What a candidate's row has to say."""
    plan = ("-",) * 6
    if isinstance(layer, SpectralLayer):
        first, tile = layer.pieces[0], "x".join(map(str, layer.tile))
        steps = f"{first.baby_steps}x{layer.placed[0].plan.diagonals // first.baby_steps}"
        plan = tile, f"{len(layer.pieces)}", f"{first.lanes}", f"{first.copies}", steps, first.sums
    times = f"{scale * cost.server:.1f}", f"{scale * cost.total:.1f}"
    return layer.encoding, *plan, *map(str, counts(layer)), *times


def row(cost: Cost, layer: Layer, scale: float) -> list[str]:
    return " ".join(cells(cost, layer, scale)).split()


def counts(layer: Layer) -> tuple[int, int, int, int]:
    return layer.rotations, layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out


def told_apart(candidates: Sequence[tuple[Cost, Layer]]) -> list[tuple[Cost, Layer]]:
    """Those that differ from every cheaper one in more than their tiles."""
    seen: set[tuple[str, ...]] = set()
    found: list[tuple[Cost, Layer]] = []
    for cost, layer in candidates:
        encoding, _, *rest = cells(cost, layer, 1)[:-2]
        if (encoding, *rest) not in seen:
            found.append((cost, layer))
        seen.add((encoding, *rest))
    return found


def test_there_is_a_line_for_every_candidate(choice: LayerChoice) -> None:
    """Of those that differ in their tiles alone, for the cheapest."""
    lines, unlike = table(choice, 10**6).splitlines(), told_apart(choice.candidates)
    assert len(lines) == 1 + 1 + len(unlike) + 1
    assert lines[1].split() == HEADINGS
    assert len({len(line) for line in lines[1:-1]}) == 1, "columns stand under each other"
    scale = 1 if choice.goal.profile.name == "counted" else 1e3
    assert [line.split() for line in lines[2:-1]] == [row(cost, layer, scale) for cost, layer in unlike]
    assert choice.layer == choice.candidates[0][1]
    assert sorted(unlike, key=lambda found: found[0].total) == unlike
    assert choice.explain() == table(choice, 12)
    assert {layer.encoding for _, layer in unlike} == {layer.encoding for _, layer in choice.candidates}


def test_what_is_saved_is_said(choice: LayerChoice) -> None:
    last = table(choice).splitlines()[-1]
    (best, layer), (second, other) = told_apart(choice.candidates)[:2]
    share = 100 * (1 - best.total / second.total)
    assert last.startswith(f"chosen over the next by {share:.1f} %: ")
    differences = {
        "HE-Rot": layer.rotations - other.rotations,
        "HE-Pmult": layer.pmults - other.pmults,
        "ciphertexts up": layer.ciphertexts_in - other.ciphertexts_in,
        "ciphertexts down": layer.ciphertexts_out - other.ciphertexts_out,
    }
    said = {
        name: int(number) * (-1 if word == "fewer" else 1)
        for number, word, name in re.findall(r"(\d+) (fewer|more) ([\w -]+?)(?:,|$)", last)
    }
    assert said == {name: n for name, n in differences.items() if n}
    assert bool(said) != last.endswith(": the same counts, cheaper transforms")


def test_the_head_says_what_was_asked(choice: LayerChoice) -> None:
    head, shape = table(choice).splitlines()[0], choice.layer.shape
    maps = f"{shape.kind} {shape.input_shape} -> {shape.output_shape}"
    asked = f"b = {choice.layer.block_size}, n = 8192", f"sums {choice.goal.sums}"
    assert all(part in head for part in (maps, *asked))


def test_dearer_candidates_are_counted() -> None:
    choice = plan_layer(*LAYERS["conv"], GOALS["measured"])
    lines, shown = table(choice, 3).splitlines(), told_apart(choice.candidates)[:3]
    assert [line.split() for line in lines[2:5]] == [row(*each, 1e3) for each in shown]
    looked_at = choice.candidates.index(shown[-1]) + 1
    assert lines[5] == f"... and {len(choice.candidates) - looked_at} dearer candidates"
    one, left = table(choice, 1).splitlines(), len(choice.candidates) - choice.candidates.index(shown[1])
    assert one[3:] == [f"... and {left} dearer candidates", lines[-1]]
    assert "dearer" not in table(choice, len(choice.candidates))


def test_candidates_that_differ_in_their_tiles_alone_are_one() -> None:
    choice = plan_layer(*LAYERS["gemm"], GOALS["counted"])
    twice = replace(choice, candidates=(choice.candidates[0],) * 2)
    assert table(twice).endswith("the only candidate")


def test_the_same_counts_differ_in_their_transforms() -> None:
    """Four positions in a lane of 64 slots or of 32: nothing that is counted changes."""
    shape = LinearShape(4, 1, 1, 1)
    layers = [SpectralLayer(shape, 1, 64, (1, 1), (Piece(1, 4, lanes, 1),)) for lanes in (1, 2)]
    assert len(set(map(counts, layers))) == 1
    choice = LayerChoice(
        layers[0], GOALS["counted"], tuple(zip((Cost(server=3.0), Cost(server=4.0)), layers, strict=True))
    )
    assert table(choice).endswith("chosen over the next by 25.0 %: the same counts, cheaper transforms")

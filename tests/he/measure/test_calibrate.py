import numpy as np
import pytest

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.measure.calibrate import _INPUTS, LAYERS, _seconds, calibrate, circuits, clear_calls, clear_seconds
from privcirnet.he.planning.cost import clear_work, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import ONLINE, OPERATIONS
from privcirnet.he.ring import modular

TIMED = {"encrypt", "receive", "rotate", "pmult_plain", "reply", "decrypt", "polynomial", "transform"}
"""Operations that no noise of the clock takes for free; the others are differences of times that may be alike."""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["kernel", "tenseal"])
@pytest.mark.parametrize(("n", "bits"), [(8192, (54, 54, 53, 53)), (16384, (48, 48, 48, 48, 49))])
def test_a_profile_of_this_machine(n: int, bits: tuple[int, ...], engine: str) -> None:
    seen: list[str] = []
    profile = calibrate(n, bits, repetitions=1, progress=seen.append, engine_name=engine)
    assert seen == ["0 of 1", "1 of 1"]
    assert list(profile.seconds) == list(OPERATIONS)
    assert (profile.ring_degree, profile.coefficient_bits) == (n, bits)
    assert profile.name == f"this machine, {engine}"
    assert all(0 <= s < 1 for s in profile.seconds.values())
    assert all(profile.seconds[name] > 0 for name in TIMED)
    assert profile.seconds["transform"] < 1e-5
    layer = cheapest_layer(LinearShape(4, 4, 16, 16, 3, 1, 1), 2, profile, LINKS["lan"])
    assert linear_cost(layer, profile, LINKS["lan"]).total > 0


def test_operations_are_found_in_the_times_of_circuits():
    """Each circuit's time, by what it has more than "one", gives back the seconds that it was made of."""
    of = {"to_ntt": 2.0, "pmult": 3.0, "from_ntt": 5.0, "rotate": 7.0, "hoist": 11.0, "giant": 13.0, "fold": 17.0}
    one = of["to_ntt"] + of["pmult"] + of["from_ntt"]
    times = {
        "one": one,
        "products": one + 8 * of["pmult"],
        "outputs": one + of["pmult"] + of["from_ntt"],
        "giant": one + of["pmult"] + of["giant"],  # both sums become one output
        "fold": one + of["fold"],
        "rotated": of["hoist"] + of["rotate"] + of["pmult"] + of["from_ntt"],
        "turns": of["hoist"] + 5 * (of["rotate"] + of["pmult"]) + of["from_ntt"],
    }
    assert times.keys() == circuits(1).keys()
    ones = ("encrypt", "receive", "receive and add", "pmult_plain", "reply", "decrypt", "polynomial", "transform")
    clear = {name: float(sum(clear_work(*layer))) for name, layer in LAYERS.items()}
    found = {name: _INPUTS * each for name, each in times.items()} | dict.fromkeys(ones, 1.0) | clear
    seconds = _seconds(found, 8192)
    assert {name: seconds[name] for name in of} == pytest.approx(of)


def test_seconds_that_are_sums_are_found_again() -> None:
    each = (3e-5, 2e-9, 1.5e-10, 1e-9, 5e-10)
    works = {name: clear_work(*layer) for name, layer in LAYERS.items()}
    found = {name: float(np.dot(each, work)) for name, work in works.items()}
    assert clear_seconds(found) == pytest.approx(dict(zip(ONLINE, each, strict=True)))


def test_every_layer_runs() -> None:
    calls = clear_calls(modular.largest_prime(54, 2))
    shapes = {name: call().shape for name, call in calls.items()}  # type: ignore[attr-defined]
    assert shapes == {name: shape.output_shape for name, (shape, _) in LAYERS.items()}

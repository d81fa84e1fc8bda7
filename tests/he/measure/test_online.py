import numpy as np
import pytest

from privcirnet.he.measure.online import LAYERS, clear_calls, clear_seconds
from privcirnet.he.planning.online import clear_work
from privcirnet.he.planning.profile import ONLINE
from privcirnet.he.ring import modular


def test_seconds_that_are_sums_are_found_again() -> None:
    each = (3e-5, 2e-9, 1.5e-10, 1e-9, 5e-10)
    works = {name: clear_work(*layer) for name, layer in LAYERS.items()}
    found = {name: float(np.dot(each, work)) for name, work in works.items()}
    assert clear_seconds(found) == pytest.approx(dict(zip(ONLINE, each, strict=True)))


def test_every_layer_runs() -> None:
    calls = clear_calls(modular.largest_prime(54, 2))
    shapes = {name: call().shape for name, call in calls.items()}  # type: ignore[attr-defined]
    assert shapes == {name: shape.output_shape for name, (shape, _) in LAYERS.items()}

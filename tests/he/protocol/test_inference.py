"""The whole protocol, both parties: results, counts, and what happens to messages that are not due."""

from collections.abc import Callable

import numpy as np
import pytest

from privcirnet.he.engines.interface import ENGINES
from privcirnet.he.program.program import Program
from privcirnet.he.ring import sampling
from tests.he.networks import attention, network, random_image, residual_of_the_image
from tests.he.parties import check, parties, seeded


@pytest.mark.parametrize("end", [-8, 15])
@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_images_at_the_ends_of_the_range(masks: str, end: int) -> None:
    program = network(masks)
    check(program, *parties(program, "cleartext"), np.full((4, 8, 8), end))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_with_the_image_itself(engine: str) -> None:
    program = residual_of_the_image()
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))
    assert session.shares["twice"] is None


@pytest.mark.parametrize("made", [network, attention])
@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_encrypted_equals_clear_text_bit_for_bit(
    made: Callable[[str], Program], masks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same masks all engines give both parties the same shares, node by node, and the right values."""
    program, results = made(masks), []
    for engine in ENGINES:
        client, session = parties(program, engine)
        monkeypatch.setattr(sampling, "uniform", seeded(7))
        traffic = check(program, client, session, random_image(program))
        results.append(([t.position for t in traffic], client.shares, session.shares))
    *encrypted, clear = results
    assert len(encrypted) == 2
    for found in encrypted:
        assert found[0] == clear[0]
        for mine, other in zip(found[1:3], clear[1:3], strict=True):
            assert mine.keys() == other.keys()
            assert all(np.array_equal(mine[name], other[name]) for name in mine if mine[name] is not None)

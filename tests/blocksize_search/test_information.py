import math
import pickle
import statistics

import pytest
import torch

from privcirnet.blocksize_search.curvature import MOST, Information, SensitivityEstimate, energies, weight_errors
from privcirnet.nn.functional.circulant import sensitivity

WEIGHT = torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(0))


def groups(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(WEIGHT.shape, generator=generator, dtype=torch.float64) for _ in range(count)]


def informed(parts: list[torch.Tensor]) -> Information:
    information = Information()
    for part in parts:
        information.add({"a": part})
    return information


def omegas(information: Information, block_sizes: tuple[int, ...], damping: float) -> dict[int, SensitivityEstimate]:
    return information.omegas("a", weight_errors(WEIGHT, information.mean("a"), block_sizes, damping))


@pytest.mark.parametrize("count", [1, 2, 7, MOST, MOST + 1, 3 * MOST + 5])
def test_omega_is_that_of_all_samples(count):
    parts = groups(count)
    information, mean = informed(parts), torch.stack(parts).mean(0)
    assert information.groups == count
    torch.testing.assert_close(information.mean("a"), mean)
    found = omegas(information, (2, 8), 0.5)
    assert list(found) == [2, 8]
    for b in (2, 8):
        assert found[b].value == pytest.approx(sensitivity(WEIGHT, mean, b, 0.5).item(), rel=1e-12)
    assert (found[2].error == math.inf) == (count == 1)


def test_the_error_is_the_spread_over_groups():
    parts = groups(10)
    found = omegas(informed(parts), (4,), 0.0)[4]
    from privcirnet.nn.functional.circulant import squared_error

    error = squared_error(WEIGHT, torch.stack(parts).mean(0), 4)
    each = [(part * error).sum().item() for part in parts]
    assert found.error == pytest.approx(statistics.stdev(each) / math.sqrt(10), rel=1e-9)


def test_the_error_covers_what_more_samples_find():
    """Omega of many groups lies within four of the errors that a few of them gave, for most of many tries."""
    far = omegas(informed(groups(400)), (4,), 0.0)[4].value
    inside = 0
    for start in range(0, 400, 20):
        few = omegas(informed(groups(400)[start : start + 10]), (4,), 0.0)[4]
        inside += abs(few.value - far) < 4 * few.error + 1e-3 * far
    assert inside >= 18


def test_no_more_sums_are_kept_than_allowed():
    information = Information()
    for part in groups(500):
        information.add({"a": part})
        assert len(pickle.dumps(information)) < (2 * MOST) * part.nbytes


def test_energies():
    assert {b: found.sum().item() for b, found in energies(WEIGHT, (2, 8)).items()} == pytest.approx(
        {b: (b - 1) * WEIGHT.square().sum().item() for b in (2, 8)}
    )


def test_a_group_counts_by_its_size():
    a, b = groups(2)
    information = informed([a])
    information.add({"a": b}, 0.25)
    torch.testing.assert_close(information.mean("a"), (a + 0.25 * b) / 1.25)
    assert omegas(information, (4,), 0.0)[4].error > 0

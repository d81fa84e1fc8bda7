import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional.batch_norm import pooled_means, power_means


@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 2, 5), 1), ((3, 5, 4), -1), ((6, 4), -1), ((6, 4), 1)])
def test_power_means_and_their_gradients(shape, axis):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    others = [i for i in range(x.ndim) if i != axis % x.ndim]
    for found, power in zip(power_means(x, axis), (1, 2, 4), strict=True):
        assert_close(found, x.pow(power).mean(others))
    assert torch.autograd.gradcheck(lambda x: power_means(x, axis), (x,))


def test_means_over_processes_are_those_of_all_numbers():
    parts = torch.randn(5, 3), torch.randn(2, 3), torch.empty(0, 3)
    here = [torch.cat([(p.mean(0).nan_to_num() * len(p)).flatten(), torch.tensor([float(len(p))])]) for p in parts]
    for part in parts:
        found = pooled_means(part.mean(0), len(part), lambda own: torch.stack(here).sum(0))
        assert_close(found, torch.cat(parts).mean(0))

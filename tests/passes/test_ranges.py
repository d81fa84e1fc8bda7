"""Ranges of values on images, and images whose values explode."""

import pytest
import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.graph import trace
from privcirnet.passes import ranges as module
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.passes.ranges import peaks, ranges, typical_images, usual_ranges
from tests.nn.quantized import INPUT_STEP, pixels


def network() -> nn.Module:
    torch.manual_seed(0)
    return trace(nn.Sequential(nn.Conv2d(1, 3, 3), Square(), nn.Flatten(), nn.Linear(108, 4)))


def images(*exploding: int, count: int = 200) -> Tensor:
    found = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    for number in exploding:
        found[number] *= 1e3
    return found


def values_of(graph: nn.Module, given: Tensor) -> dict[str, Tensor]:
    """Every node's values, by running its part of the network in one go."""
    found, x = {"input_1": given}, given
    for name, layer in graph.named_children():
        x = layer(x)
        found[f"_{name}"] = x.detach()
    return found


def test_ranges_are_those_of_all_images_at_once():
    graph, given = network(), images()
    found, expected = ranges(graph, given), values_of(graph, given)
    assert found.keys() == expected.keys()
    for name, seen in found.items():
        torch.testing.assert_close(seen.low, expected[name].amin(0))
        torch.testing.assert_close(seen.high, expected[name].amax(0))
        torch.testing.assert_close(seen.size, expected[name].abs().mean(0))
    for name, sizes in peaks(graph, given).items():
        torch.testing.assert_close(sizes, expected[name].flatten(1).abs().amax(1))


def test_usual_ranges_leave_out_what_explodes(monkeypatch):
    """One image in a group, a whole group, no image at all: the rest has the ranges that it has alone."""
    graph, ran = network(), []
    run = module.show_values
    monkeypatch.setattr(module, "show_values", lambda *given: (ran.append(len(given[1])), run(*given)))
    for exploding, again in (((), []), ((70,), [63]), ((3, *range(128, 192)), [63])):
        given = images(*exploding)
        given[list(exploding[:1])] = torch.nan
        kept = typical_images(peaks(graph, given))
        assert sorted(exploding) == (~kept).nonzero().flatten().tolist()
        ran.clear()
        found = usual_ranges(graph, given)
        assert ran == [64, 64, 64, 8, *again]
        expected = ranges(graph, given[kept])
        for name, seen in found.items():
            for part, other in zip(seen, expected[name], strict=True):
                torch.testing.assert_close(part, other)


def test_an_image_whose_values_explode_does_not_set_the_steps():
    """Of 64 images one has 30 times the values of the others, squared twice."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), Square(), nn.Conv2d(4, 4, 1), Square(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    usual = pixels(64)
    exploding = torch.cat([usual, 30 * usual[:1]])
    steps = [
        [int(m.log_step) for m in quantize(fuse(model), images, INPUT_STEP).modules() if hasattr(m, "log_step")]
        for images in (usual, exploding)
    ]
    assert steps[0] == steps[1]


def test_a_node_that_is_silent_on_most_images_may_speak_on_others():
    images = torch.tensor([[-1.0], [-2.0], [-1.0], [2.0], [1.0]])
    found = usual_ranges(trace(nn.Sequential(nn.ReLU())), images)
    assert found["_0"].high.tolist() == [2.0]


class Three(nn.Module):
    """Three values of an image, each a node."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] + x[:, 1:2] + x[:, 2:]


def test_images_of_which_none_is_usual_are_refused():
    far = torch.tensor([[9.0, 0.1, 0.1], [9.0, 0.1, 0.1], [0.1, 9.0, 0.1], [0.1, 9.0, 0.1], [0.1, 0.1, 9.0]])
    with pytest.raises(RuleError, match=r"no value far above the usual: got none of 5; train with outlier_penalty=0.1"):
        usual_ranges(trace(Three()), far)

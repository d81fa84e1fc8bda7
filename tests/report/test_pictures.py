"""Colours, ticks and bars."""

import re

import numpy as np
import pytest

from privcirnet.report import build_page, load_runs
from privcirnet.report import pictures as drawing


@pytest.mark.parametrize("fraction", np.linspace(0, 1, 41))
def test_ink_is_readable_on_every_heat(fraction):
    colours = drawing.heat(fraction)
    assert drawing.contrast(colours.light, colours.light_ink) >= 4.5
    assert drawing.contrast(colours.dark, colours.dark_ink) >= 4.5


@pytest.mark.parametrize("highest", [1e-4, 0.0123, 0.1, 0.6, 1.0, 1.01, 3.1, 59.0, 4321.0])
def test_ticks_cover_and_are_few(highest):
    places = drawing.ticks(highest)
    assert places[0] == 0
    assert places[-2] < highest <= places[-1] * (1 + 1e-9)
    assert 3 <= len(places) <= 7


def test_log_fraction_ends():
    assert [drawing.log_fraction(x, 1e-4, 1e-1) for x in (0.0, 1e-4, 1e-1)] == [0.0, 0.0, 1.0]


def test_style_classes_of_bars_exist_in_the_style_sheet(root):
    page = build_page(load_runs(root))
    used = set(re.findall(r'class="bar (\w+)"', page))
    assert used == {"whole", "some", "uniform", "predicted", "dense", "measured"}
    assert all(re.search(rf"\.{name}\b[^;]*{{[^}}]*fill:", page) for name in used)

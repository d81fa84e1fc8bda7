"""The search's part of the page."""

import re

from privcirnet.report import build_page, load_runs
from tests.report.samples import Elements, page_with


def test_heat_map_has_a_cell_per_layer_and_size(root):
    page = Elements(build_page(load_runs(root)))
    assert len(page.of_class("td", "cell")) == 4 * 5
    assert len(page.of_class("td", "chosen")) == 4
    assert len(page.of_class("td", "none")) == 4 + 1 + 0 + 3
    assert page.cells["sensitivity"].count("–") == 8
    assert page.cells["sensitivity"].count("◆ 0") == 1


def test_block_size_1_costs_nothing_even_if_the_search_left_it_out(root):
    def leave_out(contents):
        for row in contents["search"]["sensitivity"].values():
            row.pop("1")

    assert len(Elements(page_with(root, leave_out)).of_class("td", "none")) == 8


def test_json_infinity_is_an_inadmissible_size(root):
    def infinite(contents):
        contents["search"]["sensitivity"]["head"]["16"] = float("inf")

    assert len(Elements(page_with(root, infinite)).of_class("td", "none")) == 8


def test_a_budget_over_all_bars_is_on_the_chart(tmp_path):

    page = page_with(tmp_path / "demo", lambda contents: contents["search"].update(budget_s=9.0))
    places = [float(x) for x in re.findall(r'class="marker" x1="([\d.]+)%"', page)]
    assert places
    assert max(places) <= 100


def test_activations_are_listed_with_what_they_become(root):
    def searched(contents):
        options = {"own": {"latency": 0.5}, "aespa": {"latency": 0.25, "sensitivity": 1e-3}}
        contents["search"]["activations"] = {"act1": {"becomes": "aespa", "options": options}}

    cells = Elements(page_with(root, searched)).cells["blocks"]
    assert cells[cells.index("act1") :][:5] == ["act1", "aespa", "500.0", "250.0", "2.0 ×"]
    assert "dense or own, ms" in cells

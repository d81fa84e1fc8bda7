"""Rows and the page: counts regenerate, what was measured is stored, no cell is missing."""

import re

import pytest

from papers.reproduce import page, rows, seconds
from papers.reproduce.cells import Cell, Table, tables
from papers.reproduce.rows import Measured
from privcirnet.artifact.records import read_json
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

CONV = {"conv": [16, 16, 128, 128, 3], "b": 8, "layout": "published"}
CELLS = (
    Cell("a", "HE-Pmult", "", 640, "s", "why", "layer", CONV),
    Cell("a", "HE-Rot", "", 0, "s", "why", "layer", CONV),
    Cell("b", "latency", "ms", 50, "s", "", "layer_latency", {"gemm": [16, 32, 32]}),
    Cell("c", "latency", "s", 4, "s", "", "link_latency", {"bandwidth": 9, "gemm": [16, 32, 32]}),
    Cell("d", "top-1", "%", 82, "s", "", "top1", {"checkpoint": "x", "data": "mnist"}),
    Cell("e", "HE-Rot", "", 7, "s", "", empty="an encoding"),
    Cell("f", "HE-Rot", "", None, "s", "not printed", "layer", CONV),
)
TABLE = Table("paper_table1", "Paper (1999)", "Table 1", "a title", "n = 1", "of all", ("latency",), CELLS)


@pytest.fixture(scope="module")
def every():
    """The rows of all tables, as quick has them."""
    return rows.rows(tables(), rows.stored())


def test_a_row_has_both_values_and_their_ratio():
    measured = {CELLS[2].key: Measured({"latency": 0.1}, "a machine"), CELLS[4].key: Measured({"top-1": 41.0}, "it")}
    found = rows.rows([TABLE], measured)
    assert [row.ours for row in found] == [128, 8, 100, None, 41, None, 8]
    assert [row.ratio for row in found] == [0.2, None, 2, None, 0.5, None, None]
    assert [row.machine for row in found] == ["", "", "a machine", "", "it", "", ""]
    assert [row.note for row in found][:3] == ["why; of all", "why; of all", "of all"]
    assert found[3].note == f"empty: {rows.UNMEASURED}"
    assert found[5].note == "empty: an encoding"
    assert (found[0].paper, found[0].table, found[0].source, found[2].unit) == ("Paper (1999)", "Table 1", "s", "ms")


def test_a_table_in_words():
    measured = {CELLS[2].key: Measured({"latency": 0.1}, "a machine")}
    found = page.table_rows(TABLE, rows.rows([TABLE], measured))
    assert [row["row"] for row in found] == ["a", "", "b", "c", "d", "e", "f"]  # a name is said once
    assert [row["why they differ"] for row in found][:3] == ["why", "", ""]
    assert found[2] == {
        "row": "b",
        "quantity": "latency, ms",
        "paper": "50",
        "ours": "100",
        "ours / paper": "2",
        "why they differ": "",
    }
    text = page.page([TABLE], rows.rows([TABLE], measured), ["paper_table1"])
    assert "Measured here on: a machine.\nWhy they differ: of all.\n" in text
    assert (
        "| paper / ours (ratio) | HE-Pmult | HE-Rot | latency, ms | latency, s | top-1, % | why they differ |" in text
    )
    assert "| a | 640 / 128 (0.2) | 0 / 8 |  |  |  | why |" in text
    assert "![Paper (1999), Table 1](papers_paper_table1.png)" in text
    assert "| e |  | 7 / - |  |  |  | empty: an encoding |" in text
    assert "| f |  | - / 8 |  |  |  | not printed |" in text


def test_seconds_are_measured_and_kept(monkeypatch, tmp_path):
    """Images are left out where there are none; a measurement replaces an older one in the file."""
    monkeypatch.setattr(seconds, "layer_latency", lambda threads=1, **case: {"latency": 2.0, "traffic": 18.0})
    monkeypatch.setitem(seconds.SECONDS, "layer_latency", seconds.layer_latency)
    found = rows.measure([TABLE], images="", keep=tmp_path / "each.json")
    assert set(read_json(tmp_path / "each.json", "it", "")) == set(found)
    assert set(found) == {CELLS[2].key, CELLS[3].key}
    assert found[CELLS[3].key].values["latency"] == pytest.approx(2 + 18 / 9 + 0.3e-3)
    path = tmp_path / "measured.json"
    rows.store(path, {CELLS[2].key: Measured({"latency": 9.0}, "older"), "other": Measured({"x": 1.0}, "older")})
    rows.store(path, found)
    kept = read_json(path, "it", "")
    assert set(kept) == {*found, "other"}
    assert kept[CELLS[2].key] == {"values": {"latency": 2.0, "traffic": 18.0}, "machine": found[CELLS[2].key].machine}
    monkeypatch.setattr(rows, "STORED", path)
    assert rows.stored()[CELLS[2].key] == found[CELLS[2].key]


LATER = {
    ("block_size_speedups", "published"),
    ("top1", "dense/mobilenetv2_cifar100"),
}
"""Measurements of minutes that the next run of ``table=all`` adds; until then the page says so in their cells."""


def test_what_is_stored_is_what_the_tables_ask_for():
    """Nothing is stale, and of every measurement but a few there is one, which says on which machine."""
    stored, wanted = rows.stored(), rows.measured_cells(tables())
    assert set(stored) <= set(wanted)
    missing = [wanted[key] for key in set(wanted) - set(stored)]
    arguments = [(cell.by, cell.arguments or {}) for cell in missing]
    assert {(by, given.get("cheetah") or given.get("checkpoint")) for by, given in arguments} <= LATER
    assert all(each.machine and each.values for each in stored.values())


def test_counts_regenerate_and_no_cell_is_missing_from_the_page(every):
    """The page is made from the data files, the code and what is stored; a plan that changed shows here."""
    kept = (ROOT / "papers" / "results.md").read_text()
    drawn = [path.stem.removeprefix("papers_") for path in (ROOT / "papers").glob("papers_*.png")]
    assert sorted(drawn) == sorted(table.name for table in tables() if table.picture)
    made = page.page(tables(), every, drawn)
    assert made.splitlines() == kept.splitlines(), "run: python reproduce.py table=quick page=papers/results.md"
    assert not [row for row in every if f"| {row.row} | " not in kept]
    assert f"{len(every)} cells, " in kept
    assert len(every) == sum(len(re.findall(r" / \S+(?: \([\d.]+\))? \|", line)) for line in kept.splitlines())


def test_the_rows_of_the_papers_that_must_be_met(every):
    """Table 4 of PrivCirNet, exactly in the published plans; Table 1 of NeuJeans in BFV; operations of whole networks."""
    exact = [row for row in every if row.table == "Table 4" and "CirEncode" in row.row]
    exact += [row for row in every if row.table == "Table 4" and "CrypTFlow2" in row.row]
    exact += [
        row
        for row in every
        if row.paper.startswith("NeuJeans") and row.row.endswith(", NeuJeans") and row.table == "Table 1"
    ]
    assert len(exact) == 22
    assert all(row.ours == row.published for row in exact)
    units = [
        row for row in every if row.quantity in ("HE-Pmult", "HE-Rot + 0.135 HE-Pmult") and row.table == "Cost model"
    ]
    assert len(units) == 50
    assert all(row.ratio <= 1 for row in units)

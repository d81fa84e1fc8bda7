"""The data files: every cell names its source and what computes or would fill it."""

import json
import re

import pytest

from papers.reproduce.cells import TABLES, select, tables
from papers.reproduce.counts import COUNTS
from papers.reproduce.rows import SCALES
from papers.reproduce.seconds import SCRIPTS, SECONDS
from papers.reproduce.trained import TRAINED
from privcirnet.errors import RuleError
from tests.conftest import ROOT

EVERY = [(table.name, cell) for table in tables() for cell in table.cells]
PAPERS = {"PrivCirNet": 6, "Falcon 2023": 7, "ENSEI": 4, "NeuJeans": 5, "Falcon 2020": 4, "measured": 1}
"""First words of a source -> tables; one of PrivCirNet's was measured, not printed."""
KEYS = {"paper", "table", "title", "setting", "source", "units", "note", "picture", "rows"}
ROW_KEYS = {"row", "cells", "ours", "empty", "note", "where"}


def test_the_tables_of_five_papers_are_there():
    assert len(EVERY) > 250
    sources = [table.cells[0].source for table in tables()]
    assert {paper: sum(source.startswith(paper) for source in sources) for paper in PAPERS} == PAPERS


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_has_what_is_read_and_nothing_else(path):
    found = json.loads(path.read_text())
    assert set(found) <= KEYS
    assert all({"row", "cells"} <= set(row) <= ROW_KEYS for row in found["rows"])
    quantities = {quantity for row in found["rows"] for quantity in row["cells"]}
    assert set(found["units"]) | set(found.get("picture", ())) <= quantities


def test_every_cell_names_its_source_and_what_computes_or_would_fill_it():
    for name, cell in EVERY:
        where = f"{name}: {cell.row}, {cell.quantity}"
        assert re.match(
            r"(PrivCirNet|Falcon 20\d\d|ENSEI|NeuJeans), .*(section|Table|Figure|abstract)|measured: ", cell.source
        ), where
        assert bool(cell.by) != bool(cell.empty), where
        assert not cell.by or cell.by in {**COUNTS, **SECONDS, **SCRIPTS, **TRAINED}, where
        assert cell.published is not None or cell.note or cell.empty, f"{where}: why is there no printed value?"
        assert cell.unit in ("", "%", "s", "MB", "bits", "points", *SCALES), where
    assert len({(name, cell.row, cell.quantity) for name, cell in EVERY}) == len(EVERY)


def test_tables_by_name():
    assert select("all") == select("quick") == tables()
    assert [table.name for table in select("privcirnet_table4")] == ["privcirnet_table4"]
    assert {table.paper for table in select("falcon2023")} == {"Falcon (ICCAD 2023)"}
    assert len(select("falcon2023")) == PAPERS["Falcon 2023"]


@pytest.mark.parametrize("name", ["table4", "", "falcon"])
def test_an_unknown_table_is_answered_with_the_list(name):
    match = (
        f"the table must be a known one: got '{name}'; use one of all, quick, privcirnet_table3, .*, falcon2020_table9$"
    )
    with pytest.raises(RuleError, match=match):
        select(name)


def test_what_is_insecure_says_so_and_no_function_here_measures_it():
    """ENSEI's own ring: n = 2048 with q of 60 bits. Only a script of benchmarks/ makes such parameters."""
    rows = {cell.row: cell for _, cell in EVERY if cell.by in SCRIPTS}
    assert len(rows) == 4
    assert all("INSECURE" in row for row in rows)
    assert set(SCRIPTS).isdisjoint({**COUNTS, **SECONDS, **TRAINED})
    files = [path for folder in ("privcirnet", "papers") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    assert not [path for path in files if "__new__(Parameters" in path.read_text()]

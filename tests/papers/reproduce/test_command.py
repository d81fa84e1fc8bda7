"""reproduce.py as a user runs it: a table computed, a table measured, a name that is unknown."""

import pytest

import reproduce
from papers.reproduce import seconds
from privcirnet.artifact.records import read_json


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words])
    reproduce.main()


def test_a_table_is_computed_printed_and_written(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "table=neujeans_table1", f"out={tmp_path}")
    told = capsys.readouterr().out
    assert "NeuJeans (CCS 2024), Table 1: operations of one convolution in three encodings" in told
    assert "why they differ" in told
    found = read_json(tmp_path / "summary.json", "it", "")
    assert {"stage", "table", "rows", "config"} == set(found)
    assert len(found["rows"]) == 12
    row = next(row for row in found["rows"] if row["row"] == "convolution, NeuJeans" and row["quantity"] == "HE-Pmult")
    assert {name: row[name] for name in ("paper", "table", "unit", "published", "ours", "ratio", "machine")} == {
        **{"paper": "NeuJeans (CCS 2024)", "table": "Table 1", "unit": "", "published": 64, "ours": 64, "ratio": 1},
        "machine": "",
    }
    assert "formulas evaluated at C = 64" in row["note"]
    assert row["source"] == "NeuJeans, section 1.1.2, Table 1, C and 2 sqrt(C) - 2"
    assert "| convolution, NeuJeans | 64 / 64 (1) | 14 / 14 (1) |" in (tmp_path / "papers.md").read_text()


def test_a_table_with_seconds_is_measured_and_drawn(monkeypatch, tmp_path):
    monkeypatch.setitem(seconds.SECONDS, "group_latency", lambda sizes: {"latency": 21.0})
    run(monkeypatch, "table=privcirnet_table3", f"out={tmp_path}", f"store={tmp_path / 'measured.json'}")
    rows = read_json(tmp_path / "summary.json", "it", "")["rows"]
    assert [row["ours"] for row in rows if row["quantity"] == "latency"] == [21] * 5
    assert all(row["machine"] for row in rows if row["ours"])
    assert len(read_json(tmp_path / "measured.json", "it", "")) == 5
    assert (tmp_path / "papers_privcirnet_table3.png").read_bytes()[1:4] == b"PNG"
    assert "(papers_privcirnet_table3.png)" in (tmp_path / "papers.md").read_text()


def test_an_unknown_table(monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "table=table4", f"out={tmp_path}")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(
        "error: the table must be a known one: got 'table4'; use one of all, quick, "
    )

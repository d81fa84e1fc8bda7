"""Tables in the terminal, and the script around them."""

import io
import sys

import pytest
from rich.console import Console

from privcirnet.commands.report import main
from privcirnet.report import build_page, load_runs, print_tables
from privcirnet.report.runs import RECORDS
from tests.report.samples import EVIL


def test_tables_in_the_terminal(root):
    stream = io.StringIO()
    print_tables(load_runs(root), Console(file=stream, width=200))
    text = stream.getvalue()
    assert EVIL in text
    for number in ("97.83", "1,103", "21,005", "262,656"):
        assert number in text
    assert text.rstrip().endswith(str(root / "report.html"))


def test_script_writes_the_page(root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["report.py", str(root)])
    main()
    assert (root / "report.html").read_text(encoding="utf-8") == build_page(load_runs(root))
    assert capsys.readouterr().out.rstrip().endswith(str(root / "report.html"))
    assert sorted(p.name for p in root.iterdir()) == sorted([*RECORDS, "report.html"])


def test_script_says_what_is_wrong_on_one_line(root, monkeypatch, capsys):
    (root / "infer" / "summary.json").unlink()
    monkeypatch.setattr(sys, "argv", ["report.py", str(root)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "run `python infer.py root=" in captured.err

"""Tables in the terminal, and the script around them."""

import io
import sys

from rich.console import Console

from privcirnet.cli.report import main
from privcirnet.report import build_page, load_runs, print_tables
from privcirnet.report.runs import RECORDS
from tests.report.samples import EVIL, cost, summaries, write


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


def test_the_closing_line_says_what_a_prepared_image_took(tmp_path) -> None:
    content = summaries()
    online, offline = cost(0.123, 1_230_000, 18), cost(2.34, 45_600_000, 5)
    content["infer"]["phases"] = {"prepared": 5, "dropped": [], "online": online, "offline": offline}
    stream = io.StringIO()
    print_tables(load_runs(write(tmp_path / "demo", content)), Console(file=stream, width=200))
    said = "5 images took 123 ms and 1.23 MB, after 2.34 s of preparation each"
    assert said in stream.getvalue().replace("\xa0", " ")

"""The page: complete, self-contained, escaped."""

import json
import re
import shutil

import pytest
from rich.console import Console

from privcirnet.artifact.summaries import Prediction
from privcirnet.errors import RuleError
from privcirnet.report import build_page, load_runs, print_tables
from privcirnet.report.page import marks, shown_logits
from tests.report.samples import Elements, cost, page_with, summaries, write
from tests.report.test_levels import ckks


def test_page_loads_nothing_from_outside(root):
    page = build_page(load_runs(root))
    for forbidden in ("http://", "https://", "<script", "<link", "@import", "url("):
        assert forbidden not in page
    sources = [a["src"] for _, a in Elements(page).elements if "src" in a]
    assert len(sources) == 6
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_page_shows_every_number_of_every_layer(root):
    cells = Elements(build_page(load_runs(root))).cells["layers"]
    layers = summaries()["infer"]["layers"]
    for row in layers:
        for key in ("rotations", "pmults", "ciphertexts_up", "ciphertexts_down"):
            assert f"{row[key]:,}" in cells
        for key in ("bytes_up", "bytes_down"):
            assert f"{row[key] / 1e3:,.0f}" in cells
        for key in ("seconds_predicted", "seconds"):
            assert f"{row[key] * 1e3:,.1f}" in cells
    assert f"{sum(row['rotations'] for row in layers):,}" in cells
    assert f"{sum(row['seconds'] for row in layers) * 1e3:,.1f}" in cells


def test_page_shows_what_two_processes_measured_and_what_links_add(root):
    def apart(contents):
        contents["infer"] |= {
            "cost": cost(0.912, 9_876_543, 6, wan=(0.9, 1.11, 7.12)),
            "memory": {"client": 612_000_000, "server": 1_230_000_000},
        }
        contents["infer"]["audit"]["processes"] = 2
        for row in contents["infer"]["layers"]:
            row["rounds"] = 1

    page = page_with(root, apart).replace("\xa0", " ")
    for text in (
        "flooded by\n    43 bits: statistical distance at most\n    2^-34.2 an image",
        "345 ms",
        "456 ms",
        "612 MB",
        "1.23 GB",
        "9.88 MB and\n  6 rounds",
        "in 6 rounds; and 23.5 MB of keys",
    ):
        assert text in page, text
    assert page.count("in two processes, gRPC on loopback in between") == 2
    cells = Elements(page).cells["layers"]
    link = cells.index("WAN")
    assert cells[link : link + 5] == ["WAN", "900 ms", "1.11 s", "7.12 s", "9.13 s"]
    assert cells.count("5") == 1, "rounds in all"


def test_page_says_nothing_of_what_is_not_there(root):
    page = build_page(load_runs(root))
    assert page.count("in one process") == 2
    for words in ("Over a network", "Before the image", "logits</summary>", "None"):
        assert words not in page


def test_page_shows_the_largest_logits_of_each_image(root):
    def numbers(contents):
        for row in contents["infer"]["predictions"]:
            row["logits"], row["logits_clear"] = [0.5 + i for i in range(12)], [0.25 + i for i in range(12)]

    cells = Elements(page_with(root, numbers)).cells["images"]
    assert cells[:6] == ["class", "clear", "encr.", "11", "11.250", "11.500"]
    assert cells.count("11.500") == 6
    assert "0.500" not in cells


def test_page_names_classes_where_names_are_known(tmp_path):
    names = ["zero", "one", "two", "three", "<four>"]
    page = page_with(tmp_path, lambda contents: contents["infer"].update(classes=names))
    assert "<dt>label</dt><dd>two</dd><dt>clear</dt><dd>two</dd>" in page
    assert "<dd>&lt;four&gt;</dd>" in page
    assert "<dt>label</dt><dd>5</dd>" in page, "beyond the names that are there"


def test_page_shows_the_big_numbers_and_every_rung(root):
    page = build_page(load_runs(root)).replace("\xa0", " ")
    for text in ("83.3 %", "912 ms", "9.88 MB", "6 / 6", "97.83 %", "97.12 %", "96.94 %", "262,656", "61,234"):
        assert text in page
    assert "at most 2^-9.4, about 1 in 676" in page
    assert "n = 8192 is &lt;fast&gt; enough" in page


def test_module_names_are_escaped(root):
    page = build_page(load_runs(root))
    assert "<script" not in page
    assert page.count("stem.&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;[bold]") == 3


def test_wrong_and_differing_predictions_are_marked_in_words(root):
    def differ(contents):
        contents["infer"]["predictions"][3]["encrypted"] = 5

    page = page_with(root, differ)
    assert len(Elements(page).of_class("figure", "marked")) == 2
    assert "✗ wrong, differs from clear" in page
    assert page.count("✓ right") == 4


def test_logits_that_do_not_follow_raise_an_alarm(root):
    page = build_page(load_runs(root))
    assert "⚠" not in page
    assert "to within 1 unit of each truncation" in page
    assert "⚠" in page_with(root, lambda c: c["infer"]["audit"].update(logits_equal=5))


def test_bounds_are_said_in_words(root):
    contents = summaries()
    assert "<dd>Proved for every image.</dd>" in build_page(load_runs(root))
    contents["export"] |= {"bounds": "measured", "bounds_exceeded": {"images": 512, "beyond": 3, "spare_bits": -1}}
    page = build_page(load_runs(write(root, contents)))
    assert "answered wrongly. 3 of 512 held-out images do." in page


def test_a_rehearsal_is_called_so_everywhere(root):
    """In clear nothing was hidden from the server, and no word says so."""

    def rehearse(contents):
        contents["infer"]["engine"] = "cleartext"

    page = page_with(root, rehearse).replace("\xa0", " ")
    assert "NOTHING WAS ENCRYPTED" in page.split("<h1>")[1].split("</h1>")[0]
    for promise in ("without seeing", "encrypted inference", "encrypted images", "encrypted run", "client encrypted"):
        assert promise not in page.lower(), promise
    assert page.count("rehears") >= 8


def test_a_rehearsal_is_reported_where_there_is_nothing_else(root, capsys):
    shutil.copytree(root / "infer", root / "infer_rehearsal")
    summary = root / "infer_rehearsal" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"engine": "cleartext"}))
    assert not load_runs(root).infer.rehearsal, "the encrypted run comes first"
    shutil.rmtree(root / "infer")
    assert load_runs(root).infer.rehearsal
    print_tables(load_runs(root), Console())
    assert "Layers of a rehearsal, NOTHING WAS ENCRYPTED" in capsys.readouterr().out
    shutil.rmtree(root / "infer_rehearsal")
    with pytest.raises(RuleError, match=r"got no .*infer; run `python infer.py root="):
        load_runs(root)


def test_the_logits_of_a_refused_result_are_not_shown():
    refused = Prediction(label=1, encrypted=-1, clear=1, logits=[9.0, 0.5], logits_clear=[0.5, 2.25])
    assert shown_logits(refused) == []
    assert marks(refused) == ("refused: the result was wider than right ones are",)


def test_rehearsed_truncations_are_said_in_words(root):
    def rehearse(contents):
        contents["export"]["rehearsal"] = {"images": 32, "changed": 1, "refused": 0, "differ": 2, "difference": 0.01}

    words = "with 3 guard bits, changes the class of 1 of 32 held-out images."
    assert words not in build_page(load_runs(root))
    assert words in page_with(root, rehearse)


def test_colour_images(root):
    write(root, summaries(), shape=(6, 4, 4, 3))
    assert build_page(load_runs(root)).count("data:image/png") == 6


def test_too_many_images_keep_the_marked_ones(root):
    def many(contents):
        contents["infer"]["predictions"] = [
            {"label": 0, "float": 0, "clear": 0, "encrypted": int(i == 199)} for i in range(200)
        ]

    contents = summaries()
    many(contents)
    page = build_page(load_runs(write(root, contents, shape=(200, 2, 2))))
    assert page.count("data:image/png") == 96
    assert "✗ wrong" in page
    assert "96 of 200 are shown" in page


def test_prediction_marks_name_a_float_that_differs():
    assert marks(Prediction(label=1, clear=1, encrypted=1, float=2)) == ("float says 2",)


def test_page_shows_what_was_done_before_the_images(root):
    def prepared(contents):
        online, offline = (
            cost(0.123, 1_230_000, 18, wan=(0.1, 0.2, 1.44)),
            cost(2.34, 45_600_000, 5.125, wan=(2, 5, 3.7)),
        )
        contents["infer"]["phases"] = {"prepared": 5, "dropped": [], "online": online, "offline": offline}

    assert "Before the image, and with it" not in page_with(root, lambda contents: None)
    page = page_with(root, prepared).replace("\xa0", " ")
    for text in ("5 of", "123 ms", "1.23 MB", ">18<", "1.74 s", "2.34 s", "45.6 MB", ">5.1<", "10.7 s", "over WAN"):
        assert text in page, text


def both_phases(contents):
    """Of an exact program whose images wait for their preparation."""
    online, offline = cost(1.71, 990_000, 31), cost(18.9, 8_870_000, 8)
    phases = {"prepared": 0, "dropped": [], "online": online, "offline": offline}
    contents["infer"] |= {"cost": cost(20.6, 9_860_000, 39), "phases": phases}


def test_phases_are_told_apart_where_nothing_was_prepared_before(root):
    page = page_with(root, both_phases).replace("\xa0", " ")
    cells = [cell.replace("\xa0", " ") for cell in Elements(page).cells["layers"]]
    assert cells[cells.index("offline: its preparation") :][:4] == [
        "offline: its preparation",
        "18.9 s",
        "8.87 MB",
        "8.0",
    ]
    assert cells[cells.index("online: with the image") :][:4] == ["online: with the image", "1.71 s", "990 KB", "31"]
    for text in ("20.6 s", "No image was prepared before it came", "1.71 s of it in the online phase"):
        assert text in page, text
    assert "were prepared: everything encrypted was done" not in page


def test_what_a_counted_profile_predicts_is_no_time(root):
    def counted(contents):
        contents["search"] |= {"counted": True, "budget_s": 24165.57, "latency_predicted_s": 2020.4}
        contents["infer"]["audit"]["counted"] = True

    page = page_with(root, counted).replace("\xa0", " ")
    search = page[page.index('<section id="blocks">') : page.index('<section id="layers">')]
    assert "was given 24,166 units per image" in search
    assert "2,020 units" in search
    assert "dense, units" in search
    assert not re.search(r"\d (ms|s|min)\b|, ms", search)
    assert "predicted<br>units" in page
    assert "predicted<br>ms" in page_with(root, lambda contents: None)
    strips = re.findall(r'<svg class="strip".*?</svg>', page[page.index('<section id="layers">') :])
    assert not any('class="bar predicted"' in strip for strip in strips), "no bar beside seconds"


def test_a_ckks_chain_has_no_quantized_stage(tmp_path):
    """Without mode=ckks the stage is missed."""
    content = summaries()
    content.pop("qat")
    with pytest.raises(RuleError, match="needs the run directory of every stage"):
        load_runs(write(tmp_path / "missing", content))
    page = build_page(load_runs(write(tmp_path / "ckks", ckks())))
    assert "values are approximate and rescaled under encryption" in page
    assert "truncation unit" not in page

"""The report of a made-up chain of runs."""

import importlib.util
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from privcirnet.errors import RuleError
from privcirnet.report import build_page, load_runs, print_tables
from privcirnet.report import pictures as drawing
from privcirnet.report.page import marks
from privcirnet.report.records import Prediction
from privcirnet.report.runs import RECORDS, rungs, wilson_interval

EVIL = "stem.<script>alert('&')</script>[bold]"


def training(stage, top1, parameters):
    history = [{"epoch": e, "loss": 2.0 / e, "top1": top1 - 5 + e} for e in range(1, 4)]
    return {
        "stage": stage,
        "model": "lola-cifar",
        "data": "digits",
        "top1": top1,
        "epochs": 3,
        "seconds": 41.7,
        "parameters": parameters,
        "history": history,
    }


def layer(name, kind, seed, block_size=None):
    return {
        "name": name,
        "kind": kind,
        "encoding": "slots" if kind == "square" else "cirencode",
        "block_size": block_size,
        "rotations": 0 if kind == "square" else 1100 + seed,
        "pmults": 21000 + seed,
        "ciphertexts_up": 30 + seed,
        "ciphertexts_down": 50 + seed,
        "bytes_up": 1_230_400 + 1000 * seed,
        "bytes_down": 2_340_500 + 1000 * seed,
        "seconds_predicted": 0.1 + seed / 100,
        "seconds": 0.12 + seed / 90,
    }


def summaries():
    blocks = {EVIL: 1, "body.conv1": 4, "body.conv2": 8, "head": 2}
    sizes = {EVIL: [1], "body.conv1": [1, 2, 4, 8], "body.conv2": [1, 2, 4, 8, 16], "head": [1, 2]}
    return {
        "train": training("train", 97.83, 262_656),
        "search": {
            "budget_s": 0.9,
            "latency_predicted_s": 0.853,
            "uniform": {str(b): {"latency_predicted_s": s} for b, s in ((1, 3.1), (2, 1.7), (4, 1.0), (8, 0.7))},
            "status": "Optimal",
            "block_sizes": blocks,
            "sensitivity": {m: {str(b): 0 if b == 1 else 3e-5 * b**2.6 for b in sizes[m]} for m in blocks},
            "latency": {m: {str(b): 0.9 / b for b in sizes[m]} for m in blocks},
            "seconds": 12.3,
        },
        "finetune": training("finetune", 97.12, 61_234),
        "qat": training("qat", 96.94, 61_234),
        "export": {
            "choice": {"reason": "n = 8192 is <fast> enough", "table": ["row"]},
            "program": "program",
            "plain_modulus": 1099511922689,
            "plain_modulus_bits": 41,
            "ring_degree": 8192,
            "log_q": 218,
            "security_bits": 128,
            "max_value_bits": 22,
            "truncation": {"masks": "uniform", "hiding": "perfect", "failure_per_image_log2": -9.4},
            "bytes_plaintexts": 12_345_678,
            "bytes_plaintexts_dense": 45_678_901,
            "seconds": 3.2,
        },
        "infer": {
            "engine": "tenseal",
            "images": 6,
            "top1_float": 100.0,
            "top1_integer": 83.33,
            "top1_encrypted": 83.33,
            "logits_equal": 6,
            "argmax_equal": 6,
            "logit_max_difference": 0.0,
            "unit": "1 unit of each truncation",
            "seconds_per_image": 0.912,
            "bytes_per_image": 9_876_543,
            "bytes_keys": 23_456_789,
            "seconds": 8.4,
            "layers": [
                layer(EVIL, "conv", 1, 1),
                layer("square1", "square", 2),
                layer("body.conv1", "conv", 3, 4),
                layer("body.conv2", "conv", 4, 8),
                layer("head", "gemm", 5, 2),
            ],
            "predictions": [
                {"index": i, "label": i, "float": i, "integer": i if i else 7, "encrypted": i if i else 7}
                for i in range(6)
            ],
        },
    }


def write(root, contents, shape=(6, 8, 8)):
    for stage, summary in contents.items():
        (root / stage).mkdir(parents=True, exist_ok=True)
        (root / stage / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(root / "infer" / "images.npz", images=images)
    return root


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "demo", summaries())


@pytest.fixture
def script():
    """The script at the root, by its path: its name is also that of this test package."""
    spec = importlib.util.spec_from_file_location("report_script", Path(__file__).parents[2] / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Elements(HTMLParser):
    """Every element with its attributes, and the text of every table cell, by section."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.cells, self.section, self.inside = [], {}, None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "section":
            self.section = attributes["id"]
        if tag in ("td", "th"):
            self.inside = True
            self.cells.setdefault(self.section, []).append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.cells[self.section][-1] += data.strip()

    def of_class(self, tag, name):
        return [a for t, a in self.elements if t == tag and name in (a.get("class") or "").split()]


def page_with(root, change):
    contents = summaries()
    change(contents)
    return build_page(load_runs(write(root, contents)))


def test_page_loads_nothing_from_outside(root):
    page = build_page(load_runs(root))
    for forbidden in ("http://", "https://", "<script", "<link", "@import", "url("):
        assert forbidden not in page
    sources = [a["src"] for _, a in Elements(page).elements if "src" in a]
    assert len(sources) == 6
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_page_is_a_pure_function_of_the_runs(root):
    assert build_page(load_runs(root)) == build_page(load_runs(root))


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
        contents["export"]["flooding_bits"] = 40
        contents["infer"] |= {
            "processes": 2,
            "rounds": 6,
            "seconds_client": 0.345,
            "seconds_server": 0.456,
            "memory": {"client": 612_000_000, "server": 1_230_000_000},
            "links": {"wan": {"compute": 0.9, "transfer": 1.11, "round_trips": 7.12, "seconds": 9.13}},
        }
        for row in contents["infer"]["layers"]:
            row["rounds"] = 1

    page = page_with(root, apart).replace("\xa0", " ")
    for text in (
        "345 ms",
        "456 ms",
        "612 MB",
        "1.23 GB",
        "9.88 MB and\n  6 rounds",
        "in 6 rounds; and 23.5 MB of keys",
    ):
        assert text in page, text
    assert page.count("in two processes, TCP on loopback in between") == 2
    assert "statistical distance at most 2^-40 a coefficient" in page
    cells = Elements(page).cells["layers"]
    link = cells.index("WAN")
    assert cells[link : link + 5] == ["WAN", "900 ms", "1.11 s", "7.12 s", "9.13 s"]
    assert cells.count("5") == 1, "rounds in all"


def test_page_says_nothing_of_what_one_process_does_not_measure(root):
    page = build_page(load_runs(root))
    assert page.count("in one process") == 2
    for words in ("Over a network", "most memory", "logits</summary>", "2^-40"):
        assert words not in page


def test_page_shows_the_largest_logits_of_each_image(root):
    def numbers(contents):
        for row in contents["infer"]["predictions"]:
            row["logits"], row["logits_integer"] = [0.5 + i for i in range(12)], [0.25 + i for i in range(12)]

    cells = Elements(page_with(root, numbers)).cells["images"]
    assert cells[:6] == ["class", "clear", "encr.", "11", "11.250", "11.500"]
    assert cells.count("11.500") == 6
    assert "0.500" not in cells


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


def test_wrong_and_differing_predictions_are_marked_in_words(root):
    def differ(contents):
        contents["infer"]["predictions"][3]["encrypted"] = 5

    page = page_with(root, differ)
    assert len(Elements(page).of_class("figure", "marked")) == 2
    assert "✗ wrong, differs from clear" in page
    assert page.count("✓ right") == 4


def test_right_predictions_are_not_marked(root):
    def correct(contents):
        contents["infer"]["predictions"] = [{"label": i, "float": i, "integer": i, "encrypted": i} for i in range(6)]

    page = page_with(root, correct)
    assert "✗" not in page
    assert page.count("✓ right") == 6


def test_logits_that_do_not_follow_raise_an_alarm(root):
    page = build_page(load_runs(root))
    assert "⚠" not in page
    assert "exactly, up to 1 unit of each truncation" in page
    assert "⚠" in page_with(root, lambda c: c["infer"].update(logits_equal=5))


def test_only_the_required_keys_are_needed(root):
    def bare(contents):
        for stage in ("train", "finetune", "qat"):
            contents[stage] = {"top1": 90.0}
        contents["search"] = {"block_sizes": {"head": 2}}
        contents["export"] = {k: contents["export"][k] for k in ("ring_degree", "log_q", "plain_modulus_bits")}
        contents["export"]["security_bits"] = 128
        for key in ("engine", "argmax_equal", "logit_max_difference", "unit", "bytes_keys", "seconds"):
            del contents["infer"][key]
        contents["infer"]["layers"] = [{"name": "head"}]

    page = page_with(root, bare)
    assert "–" in page
    assert "None" not in page


def test_bounds_are_said_in_words(root):
    assert "bounds on values" not in build_page(load_runs(root))
    contents = summaries()
    contents["export"] |= {"bounds": "proved", "bounds_exceeded": None}
    assert "<dd>Proved for every image.</dd>" in build_page(load_runs(write(root, contents)))
    contents["export"] |= {"bounds": "measured", "bounds_exceeded": {"images": 512, "beyond": 3, "spare_bits": -1}}
    page = build_page(load_runs(write(root, contents)))
    assert "answered wrongly. 3 of 512 held-out images do." in page


def test_a_stage_that_replaced_activations_is_a_rung(root):
    write(root, summaries() | {"replace": training("replace", 95.11, 61_234)})
    whole, _ = rungs(load_runs(root))
    names = [rung.name for rung in whole]
    assert names == ["dense", "block-circulant", "polynomial activations", "8-bit"]
    assert whole[2].top1 == 95.11
    assert "95.11" in build_page(load_runs(root))


def test_optional_rung_and_unknown_keys(root):
    def more(contents):
        contents["infer"]["top1_circulant"] = 66.67
        contents["infer"]["weather"] = "rain"

    assert "66.67" in page_with(root, more)


def test_json_infinity_is_an_inadmissible_size(root):
    def infinite(contents):
        contents["search"]["sensitivity"]["head"]["16"] = float("inf")

    assert len(Elements(page_with(root, infinite)).of_class("td", "none")) == 8


def test_colour_images(root):
    write(root, summaries(), shape=(6, 4, 4, 3))
    assert build_page(load_runs(root)).count("data:image/png") == 6


def test_too_many_images_keep_the_marked_ones(root):
    def many(contents):
        contents["infer"]["predictions"] = [
            {"label": 0, "float": 0, "integer": 0, "encrypted": int(i == 199)} for i in range(200)
        ]

    contents = summaries()
    many(contents)
    page = build_page(load_runs(write(root, contents, shape=(200, 2, 2))))
    assert page.count("data:image/png") == 96
    assert "✗ wrong" in page
    assert "96 of 200 are shown" in page


COMMANDS = ("train.py", "search.py", "train.py recipe=finetune", "train.py recipe=qat", "export.py", "infer.py")


@pytest.mark.parametrize(("stage", "command"), list(zip(RECORDS, COMMANDS, strict=True)))
def test_missing_summary_names_the_stage_and_the_command(root, stage, command):
    (root / stage / "summary.json").unlink()
    with pytest.raises(RuleError, match=re.escape(f"{stage}/summary.json; run `python {command} root={root}`")):
        load_runs(root)


def test_missing_directory(root):
    with pytest.raises(RuleError, match=r"no .*elsewhere/train; run `python train\.py root="):
        load_runs(root / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["infer"].pop("layers"), r"'layers' is missing; run `python infer\.py root="),
        (lambda c: c["infer"]["layers"][2].pop("name"), r"'layers\[2\]\.name' is missing"),
        (lambda c: c["infer"]["layers"][0].update(rotations="many"), r"'layers\[0\]\.rotations' must be int, not str"),
        (
            lambda c: c["search"].update(latency={"head": {"two": 1}}),
            r"'latency\.head' must be whole numbers, not 'two'",
        ),
        (
            lambda c: c["qat"].update(top1=None),
            r"'top1' must be int or float, not NoneType; run `python train\.py recipe=qat root=",
        ),
        (lambda c: c["qat"].update(epochs=True), r"'epochs' must be int, not bool"),
        (lambda c: c.update(export=[]), r"'the whole file' must be dict, not list; run `python export\.py root="),
    ],
)
def test_malformed_summary_names_the_key(root, change, message):
    with pytest.raises(RuleError, match=message):
        page_with(root, change)


def test_broken_json(root):
    (root / "search" / "summary.json").write_text("{", encoding="utf-8")
    with pytest.raises(RuleError, match=r"summary of 'search' must be well-formed.*run `python search\.py root="):
        load_runs(root)


def test_images_must_be_there_and_match(root):
    path = root / "infer" / "images.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(RuleError, match=r"images\.npz must hold.*run `python infer\.py root="):
        load_runs(root)
    path.unlink()
    with pytest.raises(RuleError, match=r"got no .*images\.npz"):
        load_runs(root)
    write(root, summaries(), shape=(5, 8, 8))
    with pytest.raises(RuleError, match=r"\(5, 8, 8\) for 6 predictions"):
        load_runs(root)


def test_tables_in_the_terminal(root):
    stream = io.StringIO()
    print_tables(load_runs(root), Console(file=stream, width=200))
    text = stream.getvalue()
    assert EVIL in text
    for number in ("97.83", "1,103", "21,005", "262,656"):
        assert number in text
    assert text.rstrip().endswith(str(root / "report.html"))


def test_script_writes_the_page(root, script, capsys):
    script.main([str(root)])
    assert (root / "report.html").read_text(encoding="utf-8") == build_page(load_runs(root))
    assert capsys.readouterr().out.rstrip().endswith(str(root / "report.html"))
    assert sorted(p.name for p in root.iterdir()) == sorted([*RECORDS, "report.html"])


def test_script_says_what_is_wrong_on_one_line(root, script, capsys):
    (root / "infer" / "summary.json").unlink()
    with pytest.raises(SystemExit) as stopped:
        script.main([str(root)])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "run `python infer.py root=" in captured.err


def test_prediction_marks_name_a_float_that_differs():
    assert marks(Prediction(label=1, integer=1, encrypted=1, float=2)) == ("float says 2",)


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


def test_wilson_interval_of_a_perfect_score_is_not_a_point():
    low, high = wilson_interval(100.0, 16)
    assert low == pytest.approx(80.64, abs=0.01)
    assert high == pytest.approx(100.0)
    assert wilson_interval(50.0, 0) is None


def test_style_classes_of_bars_exist_in_the_style_sheet(root):
    page = build_page(load_runs(root))
    used = set(re.findall(r'class="bar (\w+)"', page))
    assert used == {"whole", "some", "uniform", "predicted", "dense", "measured"}
    assert all(re.search(rf"\.{name}\b[^;]*{{[^}}]*fill:", page) for name in used)

"""The report of a network on bootstrapped CKKS: levels and precision by layer, and a shorter chain."""

import io
import re
import shutil

import pytest
from rich.console import Console

from privcirnet.artifact.summaries import LayerRow
from privcirnet.errors import RuleError
from privcirnet.report import build_page, load_runs, print_tables
from privcirnet.report.page import level_chart, precision_chart
from tests.report.samples import COMPARED, Elements, cost, layer, summaries, write


def rows():
    kinds = {"image": "image", "layer1.conv": "convolution", "layer1.act": "square", "layer1.act bootstrapping": 0}
    kinds |= {"layer2.conv": "convolution", "head": "linear"}
    levels, bits = (4, 3, 2, 8, 7, 0), (31.5, 30.2, 29.4, 21.1, 20.6, 22.4)
    found = []
    for (name, kind), level, precision in zip(kinds.items(), levels, bits, strict=True):
        row = layer(name, kind or "bootstrapping", len(found)) | {"level": level, "precision_bits": precision}
        found.append({key: value for key, value in row.items() if "bytes" not in key and "ciphertexts" not in key})
    return found


def ckks():
    """Summaries as export and infer write them with mode=ckks."""
    found = summaries()
    predictions = [{"index": i, "label": i, "float": i, "clear": i, "encrypted": i} for i in range(6)]
    predictions[1] |= {"logits": [None, 2.5, 1.0], "logits_clear": [0.5, 2.5, 1.0]}
    circuit = {"levels": 20, "bootstrappings": 8, "precision_bits": 22.4, "operations": {"rotate": 9}}
    circuit |= {"rotation_keys": 5, "bytes_keys_server": 5_000_000_000, "bytes_weights": 4_000_000_000}
    circuit |= {"processor_seconds_predicted": {"layers": 20.0, "bootstrapping": 30.0}}
    audit = {"mode": "ckks", **COMPARED, "top1_clear": 100.0, "seconds_server": 38.8, "logits_bits": 21.53}
    infer = found["infer"] | {
        "top1_encrypted": 100.0,
        "cost": cost(39.0, 4_780_000, 1),
        "memory": {"both": 12_200_000_000},
        "audit": audit | {"logits_bits_images": 6 * [21.53], "beyond": [4], "circuit": circuit},
        "layers": rows(),
        "predictions": predictions,
    }
    export = {"mode": "ckks", "ring_degree": 65536, "log_q": 1736, "security_bits": 128, "scale_bits": 45}
    export |= {"level_image": 4, "failure_bits": 39, "depth_squares": 19, "circuit": circuit}
    return {"train": found["train"], "export": export, "infer": infer}


@pytest.fixture
def chain(tmp_path):
    """Neither searched nor fine-tuned."""
    return write(tmp_path / "ckks", ckks())


def test_the_page_shows_levels_and_precision_of_every_layer(chain):
    page = build_page(load_runs(chain))
    elements = Elements(page)
    assert len(elements.of_class("svg", "chart")) == 3
    bars = re.findall(r"<title>(.*?)</title></rect>", page)
    assert bars[:6] == [f"{row['name']}: {row['level']} level" for row in rows()]
    assert bars[6] == "image: 31.5 bits"
    cells = elements.cells["layers"]
    assert {str(row["level"]) for row in rows()} | {f"{row['precision_bits']:.1f}" for row in rows()} <= {*cells}
    for words in (
        "right to 21.5 bits",
        "CKKS, bootstrapped",
        "all 6 are what the same network says",
        "2^-39",
        "12.2 GB",
    ):
        assert words in page.replace("\xa0", " ")
    for words in ("BFV", "plain modulus", "integer network", "flooded", 'id="sensitivity"', "None"):
        assert words not in page.replace("None: values", "")


def test_lengths_compare_as_the_values_do(chain):
    """Columns begin at 0: twice the level is twice as tall."""
    tall = [float(h) for h in re.findall(r'height="([\d.]+)"><title>', str(level_chart(load_runs(chain).infer.layers)))]
    assert tall == pytest.approx([120 * row["level"] / 8 for row in rows()])


def test_groups_of_layers_are_named_once():
    layers = [LayerRow(f"layer{i}.{j}.conv", level=1) for i in (1, 2) for j in range(20)]
    chart = str(level_chart([LayerRow("image", level=1), *layers]))
    assert re.findall(r'class="axis"[^>]*>(\D\w*)</text>', chart) == ["layer1", "layer2"]
    assert precision_chart(layers) is None


def test_the_tables_in_the_terminal(chain):
    stream = io.StringIO()
    print_tables(load_runs(chain), Console(file=stream, width=120))
    text = stream.getvalue()
    assert "The logits of 6 images are right to 21.5 bits" in text
    assert re.search(r"layer1.act bootstrapping\s+8\s+21.1", text)


def test_other_chains_need_their_search(tmp_path):
    write(tmp_path, summaries())
    shutil.rmtree(tmp_path / "search")
    with pytest.raises(RuleError, match=r"run directory of every stage: got no .*search"):
        load_runs(tmp_path)

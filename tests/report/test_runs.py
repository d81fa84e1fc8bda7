"""Runs read from disk: what may be absent, and what is refused."""

import os
import re
import shutil

import pytest

from privcirnet.errors import RuleError
from privcirnet.report import build_page, load_runs
from privcirnet.report.runs import RECORDS, ladder_steps, wilson_interval
from tests.report.samples import Elements, page_with, summaries, training, write


def test_only_the_required_keys_are_needed(root):
    def bare(contents):
        for stage in ("train", "finetune", "qat"):
            del contents[stage]["history"]
        for key in ("seconds", "mode"):
            del contents["export"][key]
        del contents["infer"]["top1_float"]
        del contents["infer"]["audit"]["unit"]
        contents["infer"]["layers"] = [{"name": "head"}]

    page = page_with(root, bare)
    assert "–" in page
    assert "None" not in page


def test_unknown_keys_are_ignored(root):
    def more(contents):
        contents["infer"]["weather"] = "thunder"

    assert "thunder" not in page_with(root, more)


def test_a_stage_that_replaced_activations_is_a_rung(root):
    write(root, summaries() | {"replace": training("replace", 95.11, 61_234)})
    whole, _ = ladder_steps(load_runs(root))
    names = [step.name for step in whole]
    assert names == ["dense", "block-circulant", "polynomial activations", "8-bit"]
    assert whole[2].top1 == 95.11
    assert "95.11" in build_page(load_runs(root))


def test_activations_that_stayed_are_no_polynomials(root):
    write(root, summaries() | {"replace": training("replace", 95.11, 61_234) | {"activation": "own"}})
    assert [step.name for step in ladder_steps(load_runs(root))[0]][2] == "exact activations"


def test_a_network_that_runs_as_it_is_has_neither_plan_nor_blocks(root):
    """Dense, with exact truncations: no search, no finetune."""
    contents = summaries()
    del contents["export"]["truncation"], contents["infer"]["audit"]["unit"]
    write(root, contents)
    for stage in ("search", "finetune"):
        shutil.rmtree(root / stage)
    names = [step.name for step in ladder_steps(load_runs(root))[0]]
    assert names == ["dense", "8-bit"]
    page = build_page(load_runs(root))
    assert "exactly, bit for bit" in page
    assert "Truncation is exact" in page


def test_a_stage_that_came_again_is_a_rung_of_its_own(root):
    """In the order in which they were finished, each behind the stage that it is one more of."""
    more = {"replace_more": training("replace", 95.2, 61_234), "replace_mean": training("replace", 95.3, 61_234)}
    write(root, summaries() | {"replace": training("replace", 95.11, 61_234)} | more)
    for seconds, name in enumerate(more):
        os.utime(root / name / "summary.json", (seconds, seconds))
    (root / "of_another_kind").mkdir()
    (root / "of_another_kind" / "summary.json").write_text("{}")
    whole, _ = ladder_steps(runs := load_runs(root))
    assert [step.name for step in whole][2:] == ["polynomial activations", *more, "8-bit"]
    shown = [cell for cells in Elements(build_page(runs)).cells.values() for cell in cells]
    stages = ["train", "search", "finetune", "replace", *more, "qat", "export", "infer"]
    assert [cell for cell in shown if cell in stages][-len(stages) :] == stages


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
        (lambda c: c["infer"].pop("audit"), r"'audit' is missing; run `python infer\.py root="),
        (lambda c: c["infer"]["audit"].pop("logits_equal"), r"'audit\.logits_equal' is missing"),
        (lambda c: c["infer"]["audit"].update(mode="leveled"), r"'audit\.mode' must be 'integer', not 'leveled'"),
        (lambda c: c["export"].update(mode="ckks"), r"'scale_bits' is missing; run `python export\.py root="),
        (lambda c: c["export"].update(truncation={"exact": True}), r"'truncation\.failure_per_image_log2' is missing"),
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


def test_wilson_interval_of_a_perfect_score_is_not_a_point():
    low, high = wilson_interval(100.0, 16)
    assert low == pytest.approx(80.64, abs=0.01)
    assert high == pytest.approx(100.0)
    assert wilson_interval(50.0, 0) is None

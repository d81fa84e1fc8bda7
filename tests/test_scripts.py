"""The scripts as a user runs them: the whole chain on the digits, small, and every kind of bad input."""

import dataclasses
import importlib
import json
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch

import privcirnet as pc
from privcirnet.artifact.program import read_program
from privcirnet.artifact.records import read_profile
from privcirnet.artifact.run import locked
from privcirnet.cli.settings import composed
from privcirnet.config import InferConfig
from privcirnet.data.dataset import ImageData
from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.planning.plan_program import scaled
from privcirnet.runs.evaluation import evaluate
from privcirnet.train import record
from tests.scripts import FORMATS, STAGES, call, documented, refused, summary

FIVE = [48, 48, 48, 48, 49]
PROVED = "he.bounds=proved"


@pytest.fixture
def root(digits_chain):
    return digits_chain


def test_chain_leaves_what_the_docs_promise(root):
    assert sorted(p.name for p in root.iterdir()) == sorted([*STAGES, "report.html"])
    for stage in STAGES:
        assert summary(root, stage)["stage"] == stage
        assert not list((root / stage).glob(".*")), "drafts left behind"
    for stage in ("train", "finetune", "qat"):
        assert not (root / stage / "resume.pt").exists()
        history = summary(root, stage)["history"]
        assert set(history[0]) == set(record.COLUMNS)
        assert (root / stage / "history.csv").read_text() == record.table(history)
        assert (root / stage / "curves.png").stat().st_size > 0


def test_chain_is_accurate_and_exact(root):
    assert summary(root, "train")["top1"] > 90
    infer = summary(root, "infer")
    assert infer["images"] == infer["audit"]["logits_equal"] == 3
    assert infer["audit"]["wrong_nodes"] == []
    assert all(
        (layer["rotations"], layer["pmults"]) == (layer["rotations_planned"], layer["pmults_planned"])
        for layer in infer["layers"]
    )
    search = summary(root, "search")
    assert search["latency_predicted_s"] <= search["budget_s"] * (1 + 1e-9)
    assert summary(root, "finetune")["block_sizes"] == search["block_sizes"]
    assert summary(root, "export")["security_bits"] == 128
    assert summary(root, "export")["bytes_plaintexts"] < summary(root, "export")["bytes_plaintexts_dense"]


def test_evaluating_measures_what_training_did(root, tmp_path, monkeypatch):
    for stage in ("train", "qat"):
        call(monkeypatch, "train", f"evaluate={root / stage / 'checkpoint.safetensors'}", f"out={tmp_path}")
        found = summary(tmp_path)
        assert set(found) == documented("train evaluate=")
        assert (found["stage"], found["images"]) == ("evaluate", 360)
        assert found["top1"] == summary(root, stage)["top1"]
        assert not (tmp_path / "checkpoint.safetensors").exists()


def test_a_small_copy_is_written_and_measured(root, tmp_path, monkeypatch, capsys):
    whole = root / "finetune" / "checkpoint.safetensors"
    call(monkeypatch, "train", f"evaluate={whole}", "compact=rows8", f"out={tmp_path / 'small'}")
    small = tmp_path / "small" / "checkpoint.safetensors"
    found = summary(tmp_path, "small")
    assert found["checkpoint"] == str(small)
    assert abs(found["top1"] - summary(root, "finetune")["top1"]) < 2
    assert small.stat().st_size < whole.stat().st_size / 2
    call(monkeypatch, "train", f"evaluate={small}", f"out={tmp_path / 'again'}")
    assert summary(tmp_path, "again")["top1"] == found["top1"]
    quantized = f"evaluate={root / 'qat' / 'checkpoint.safetensors'}"
    call(monkeypatch, "train", quantized, "compact=rows8", f"out={tmp_path / 'qat'}")
    assert summary(tmp_path, "qat")["top1"] == summary(root, "qat")["top1"]
    error = refused(monkeypatch, capsys, "train", quantized, "compact=float16", f"out={tmp_path / 'refused'}")
    assert "quantized weights must keep their grid: got float16 for 8 bits" in error
    assert "compact must be a known one" in refused(monkeypatch, capsys, "train", "evaluate=x", "compact=zip")
    assert "compact= needs evaluate=" in refused(monkeypatch, capsys, "train", "compact=rows8")
    assert not (tmp_path / "refused").exists()


def test_a_disk_that_fills_up_loses_nothing(tmp_path, monkeypatch, capsys, file_limit):
    """In the second epoch of three; the run goes on where the first ended."""
    settings = "recipe.epochs=3", f"root={tmp_path}"
    out, epoch = tmp_path / "train", record.Record.epoch

    def filling(self, history):
        line = epoch(self, history)
        if len(history) == 2:
            file_limit((out / "resume.pt").stat().st_size // 2)
        return line

    with monkeypatch.context() as patch:
        patch.setattr(record.Record, "epoch", filling)
        error = refused(patch, capsys, "train", *settings)
    assert f"got {out / 'resume.pt'}: File too large; make room and start again" in error
    assert "training resumes from its last epoch" in error
    assert sorted(path.name for path in out.iterdir()) == ["history.csv", "resume.pt"]
    file_limit(resource.RLIM_INFINITY)
    seen = []
    monkeypatch.setattr(record.Record, "epoch", lambda self, h: (seen.append(len(h)), epoch(self, h))[1])
    call(monkeypatch, "train", *settings, "tensorboard=true")
    assert seen == [2, 3]
    assert [line.split(",")[0] for line in (out / "history.csv").read_text().splitlines()[1:]] == ["1", "2", "3"]
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))


def test_other_settings_do_not_overwrite_an_interrupted_run(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    settings = "recipe.epochs=2", f"root={tmp_path}"
    with monkeypatch.context() as patch:
        patch.setattr(record.Record, "epoch", lambda self, _: setattr(self, "step", interrupted))
        with pytest.raises(SystemExit, match="130"):
            call(patch, "train", *settings)
    state = tmp_path / "train" / "resume.pt"
    before = state.read_bytes()
    error = refused(monkeypatch, capsys, "train", *settings, "seed=1", "recipe.batch_size=32")
    assert f"resumed with its settings: got recipe.batch_size=32 after 64, seed=1 after 0 for {state.parent};" in error
    assert state.read_bytes() == before
    call(monkeypatch, "train", *settings, "seed=1", "recipe.batch_size=32", "resume=false")
    assert [entry["epoch"] for entry in summary(tmp_path, "train")["history"]] == [1, 2]


def test_a_complete_run_with_other_settings_is_replaced_only_if_asked(tmp_path, monkeypatch, capsys):
    settings = "epochs=0", f"root={tmp_path}"
    call(monkeypatch, "train", *settings)
    call(monkeypatch, "train", *settings)
    before = summary(tmp_path, "train")
    error = refused(monkeypatch, capsys, "train", *settings, "seed=1")
    got = f"got seed=1 after 0 for {tmp_path}/train, which has {before['top1']:.2f} % top-1"
    assert f"a complete run must not be replaced unasked: {got}; give another out=" in error
    settled = refused(monkeypatch, capsys, "train", *settings, "recipe=finetune", "uniform=2", f"out={tmp_path}/train")
    assert "recipe.stage=finetune after train" in settled
    assert summary(tmp_path, "train") == before
    call(monkeypatch, "train", *settings, "seed=1", f"out={tmp_path}/other")
    call(monkeypatch, "train", *settings, "seed=1", "overwrite=true")
    assert summary(tmp_path, "train")["config"]["seed"] == 1


@pytest.mark.parametrize(
    ("script", "changed", "said"),
    [
        ("search", "samples=32", "samples=32 after 64"),
        ("export", "plaintexts=compact", "plaintexts=compact after full"),
        ("infer", "images=1", "images=1 after 3"),
    ],
)
def test_other_stages_are_replaced_only_if_asked(root, monkeypatch, capsys, script, changed, said):
    """Nothing is read or computed before it is refused."""
    before = summary(root, script)
    monkeypatch.setattr(importlib.import_module(f"privcirnet.cli.{script}"), "load_for", None)
    error = refused(monkeypatch, capsys, script, f"root={root}", changed)
    assert f"a complete run must not be replaced unasked: got {said}" in error
    assert "or overwrite=true, which replaces it" in error
    with pytest.raises(TypeError):  # it goes on
        call(monkeypatch, script, f"root={root}", changed, "overwrite=true")
    assert summary(root, script) == before


@pytest.mark.parametrize("stage", STAGES)
def test_summary_keys_are_the_documented_ones(root, stage):
    assert set(summary(root, stage)) == documented(stage)


@pytest.mark.parametrize("part", ["cost", "phases", "audit"])
def test_keys_of_records_are_the_documented_ones(root, part):
    row = next(line for line in FORMATS.splitlines() if line.startswith("| `infer` |"))
    (described,) = re.findall(rf"`{part}` \(((?:[^()]|\([^()]*\))*)\)", row)
    assert set(summary(root, "infer")[part]) <= set(re.findall(r"`(\w+)`", described))


def test_layer_keys_are_the_documented_ones(root):
    row = next(line for line in FORMATS.splitlines() if line.startswith("| `infer` `layers`"))
    assert set(summary(root, "infer")["layers"][0]) == set(re.findall(r"`(\w+)`", row.split("|")[2]))


def test_one_run_at_a_time_has_a_folder(tmp_path, monkeypatch, capsys):
    """A refused one leaves no folder behind; nor does one that is refused later."""
    settings, out = ("epochs=0", f"root={tmp_path}"), tmp_path / "train"
    with locked(out / ".lock"):
        error = refused(monkeypatch, capsys, "train", *settings)
    assert f"a folder is for one run at a time: got another in {out}; wait until it ends" in error
    shutil.rmtree(out)
    assert "images must be there" in refused(monkeypatch, capsys, "train", *settings, "data=cifar10", "data.root=no")
    assert not out.exists()
    call(monkeypatch, "train", *settings)
    assert not (out / ".lock").exists()
    nowhere = refused(monkeypatch, capsys, "train", *settings, "out=/proc/train")
    assert "out must be a folder that can be written: got /proc/train: " in nowhere


def test_ctrl_c_keeps_the_images_that_are_done(root, tmp_path, monkeypatch, capfd):
    def pressed(*args):
        signal.raise_signal(signal.SIGINT)
        return evaluate(*args)

    monkeypatch.setattr("privcirnet.cli.infer.evaluate", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored, as in the background
    with pytest.raises(SystemExit, match="130"):
        call(monkeypatch, "infer", f"root={root}", "images=3", "engine=cleartext", f"out={tmp_path}")
    said = capfd.readouterr().err
    assert "Ending with this image. Ctrl-C again stops at once" in said
    assert f"error: interrupted; {tmp_path / 'interrupted.json'} has the first 1 of 3 images" in said
    partial = json.loads((tmp_path / "interrupted.json").read_text())
    assert (partial["images"], len(partial["predictions"])) == (1, 1)
    assert not (tmp_path / "summary.json").exists(), "a part of a result is no result"
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_a_rehearsal_has_a_folder_and_a_name_of_its_own(root, tmp_path, monkeypatch, capsys):
    """It replaces what was encrypted only if asked."""
    root = shutil.copytree(root, tmp_path / "copy")
    before = summary(root, "infer")
    for count in (1, 2):
        call(monkeypatch, "infer", f"root={root}", f"images={count}", "engine=cleartext", "overwrite=true")
        shown = " ".join(capsys.readouterr().out.split())
        assert "rehearsal in clear: " in shown
        assert "NOTHING WAS ENCRYPTED" in shown
        assert "rehearsed " in shown
        assert summary(root, "infer_rehearsal")["images"] == count
    error = refused(monkeypatch, capsys, "infer", f"root={root}", "images=1", "engine=cleartext", f"out={root}/infer/.")
    assert "a complete run must not be replaced unasked: got engine=cleartext after kernel" in error
    assert summary(root, "infer") == before


def test_where_inferences_go(tmp_path):
    """An encrypted run, a client, their rehearsals, and what is named."""

    def out(*settings):
        return Path(composed("infer", InferConfig, [f"root={tmp_path}", *settings]).out).name

    server, clear = "server=127.0.0.1:5077", "engine=cleartext"
    assert [out(), out(clear)] == ["infer", "infer_rehearsal"]
    assert [out(server), out(server, clear)] == ["client", "client_rehearsal"]
    assert out(server, clear, f"out={tmp_path}/mine") == "mine"


@pytest.mark.parametrize(
    ("block_sizes", "match"),
    [
        ({"conv1": 3}, r"block size must divide both weight dimensions: got 3 for \(32, 32.*\) at 'conv1'"),
        ({"conv9": 2}, "a layer name must exist in the model: got 'conv9'; did you mean 'conv"),
        ({"square": 2}, "a layer must be Linear, Conv1d or Conv2d: got Square at 'square'"),
    ],
)
def test_bad_plans(root, monkeypatch, capsys, tmp_path, block_sizes, match):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"format": "privcirnet-plan", "version": 1, "block_sizes": block_sizes}))
    out = tmp_path / "out"
    error = refused(
        monkeypatch, capsys, "train", f"root={root}", "recipe=finetune", f"recipe.plan={plan}", f"out={out}"
    )
    assert re.search(match, error)
    assert not out.exists()


def test_a_program_is_enough_for_infer(root, monkeypatch, tmp_path):
    """Its profile is in it; what others made may have none, and is run without predicted seconds."""
    made, program, at = pc.load(root / "export" / "program"), tmp_path / "program", f"root={tmp_path}"
    for kept, predicted in ((made, True), (dataclasses.replace(made, profile=None), False)):
        kept.save(program)
        reference = f"reference={root}/finetune"
        call(monkeypatch, "infer", at, f"program={program}", reference, "images=1", "engine=cleartext")
        layers = summary(tmp_path, "infer_rehearsal")["layers"]
        assert {"seconds_predicted" in layer for layer in layers} == {predicted}


def test_wrong_image_size(root, monkeypatch, capsys, tmp_path):
    images, labels = torch.zeros(4, 1, 10, 10, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    large = ImageData(images, labels, images, labels, -4, 16, tuple("0123456789"))
    monkeypatch.setattr(importlib.import_module("privcirnet.cli.infer"), "load_for", lambda *_: large)
    error = refused(monkeypatch, capsys, "infer", f"root={root}", f"out={tmp_path / 'out'}")
    assert re.search(r"input shape: got \(1, 10, 10\) for \(1, 8, 8\)", error)
    assert not (tmp_path / "out").exists()


def test_a_data_set_of_another_size_names_the_setting(monkeypatch, capsys, tmp_path):
    images, labels = torch.zeros(4, 1, 16, 16, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    large = ImageData(images, labels, images, labels, -4, 16, tuple("0123456789"))
    monkeypatch.setattr(importlib.import_module("privcirnet.cli.train"), "load_for", lambda *_: large)
    error = refused(monkeypatch, capsys, "train", f"root={tmp_path}", "epochs=0")
    assert "a network must take the images: got digits_resnet for digits, (1, 16, 16) of float32: " in error
    assert "; give another model=, as model=resnet18_cifar" in error


@pytest.mark.parametrize(
    ("script", "overrides", "match"),
    [
        ("search", ["budget=1e-6", "he.profile=PROFILE"], "at least the fastest assignment's: got 1e-06 s"),
        (
            "search",
            ["he.ring_degree=16384", f"he.coefficient_bits={[60] * 8}"],
            "at most 430 .* security: got 480 bits",
        ),
        ("search", ["he.ring_degree=4096", f"he.coefficient_bits={FIVE}"], "at most 106 at ring degree 4096"),
        ("search", ["he.ring_degree=5000", f"he.coefficient_bits={FIVE}"], "in the 128-bit table: got 5000; use 1024"),
        ("search", ["he.ring_degree=5000"], "that of a known set: got 5000; use 8192, 16384, or 0"),
        ("search", ["he.coefficient_bits=[48,48]"], "he.coefficient_bits needs he.ring_degree"),
        (
            "export",
            ["he.ring_degree=8192", "he.failure_bits=21", PROVED],
            r"noise budget: got -?\d+ bits with n = 8192, ",
        ),
        ("export", ["he.failure_bits=59", PROVED], r"must reach he.failure_bits = 59: got [\d.]+"),
        ("export", ["init=nowhere"], "train.py must exist: got nowhere/checkpoint.safetensors"),
        ("export", ["init=${root}/train"], "must be quantized: got DigitsResNet"),
        ("export", ["init=${root}/qet/qat"], "train.py recipe=qat must exist: got "),
        ("export", ["plaintexts=some"], "plaintexts must be a known one: got 'some'; use one of compact, full"),
        ("train", ["device=tpu"], "device must be one of this machine: got tpu"),
        ("train", ["data=birds"], "right type: got data=birds; use one of cifar10, cifar100, digits"),
        ("train", ["model=resnet50"], "got model=resnet50; did you mean model.name=resnet50 of timm or torchvision"),
        ("train", ["model.name=digits_resnext"], "got 'digits_resnext'; try .*digits_resnet"),
        ("train", ["epoch=3"], r"got epoch; did you mean recipe.epochs=\.\.\."),
        (
            "search",
            ["model.name=resnet18"],
            "search.py takes the network from .*/train: got model.name; give it to train",
        ),
        ("train", ["--epochs", "3"], r"name=value: got --epochs 3; did you mean recipe\.epochs=3\?"),
        ("train", ["recipe.learning_rate=0"], "recipe.learning_rate must be above 0: got 0"),
        ("infer", ["engine=seal"], "engine must be a known one: got 'seal'"),
        ("infer", ["imgaes=3"], "right type: got imgaes; did you mean images="),
        ("infer", ["--cfg=job", "imgaes=3"], "right type: got .*; did you mean images="),
        ("infer", ["--imgaes=3"], r"got --imgaes=3; did you mean images=3\?"),
        (
            "infer",
            ["images=many"],
            "images= must be a number of held-out images, or a folder .* got many: nothing is there",
        ),
        ("infer", ["images"], "got images; did you mean images=..."),
        ("infer", ["data=cifar"], "right type: got data=cifar; did you mean data=cifar10;"),
        ("infer", ["program=${nope}"], r"right type: got \${nope}; the name in braces"),
        ("infer", ["weights_gb=-1"], "weights_gb must be at least 0: got -1.0"),
        ("search", ["--hepl"], "got --hepl; --help lists the settings"),
    ],
)
def test_bad_settings(root, monkeypatch, capsys, tmp_path, script, overrides, match):
    overrides = [o.replace("PROFILE", f"{root}/search/profile.json") for o in overrides]
    error = refused(monkeypatch, capsys, script, f"root={root}", *overrides, f"out={tmp_path / 'out'}")
    assert re.search(match, error), error
    assert not (tmp_path / "out").exists(), "something was written"


def test_a_reference_that_was_not_exported_is_doubted(root, tmp_path, monkeypatch, capsys):
    call(monkeypatch, "train", f"root={tmp_path}", "recipe.epochs=0")
    settings = f"root={root}", f"out={tmp_path / 'out'}", "images=8", "engine=cleartext"
    doubt = re.compile(r"reference +\d of 8 images have the same class in it as in clear: is .*what was exported\?")
    for reference, doubted in ((f"{tmp_path}/train", True), (f"{root}/finetune", False)):
        capsys.readouterr()
        call(monkeypatch, "infer", *settings, f"reference={reference}", "overwrite=true")
        shown = " ".join(capsys.readouterr().out.split())
        assert bool(doubt.search(shown)) == doubted, shown


@pytest.mark.parametrize("script", ["train", "search", "export", "infer"])
def test_a_place_for_results_is_looked_at_before_anything_is_done(monkeypatch, capsys, tmp_path, script):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        error = refused(monkeypatch, capsys, script, f"root={tmp_path}", f"out={tmp_path / place}")
        assert f"error: out must be a folder that can be written: got {tmp_path / place}" in error
    assert (tmp_path / "file").read_text() == "mine"


def test_a_client_needs_no_network(tmp_path):
    """With server= there is nothing to compare with, unless a run is there or named."""
    fresh = composed("infer", InferConfig, [f"root={tmp_path}", "server=127.0.0.1:5077"])
    named = composed("infer", InferConfig, [f"root={tmp_path}", "server=127.0.0.1:5077", "reference=elsewhere"])
    (tmp_path / "finetune").mkdir()
    there = composed("infer", InferConfig, [f"root={tmp_path}", "server=127.0.0.1:5077"])
    assert [each.reference for each in (fresh, named, there)] == ["", "elsewhere", f"{tmp_path}/finetune"]


def exported(root, monkeypatch, tmp_path, *overrides):
    """Summary of an export, and the sets that were measured for it."""
    measured, profiles = [], importlib.import_module("privcirnet.runs.profiles")

    def calibrate(ring_degree, coefficient_bits, *_):
        measured.append((ring_degree, coefficient_bits))
        return scaled(read_profile(root / "search" / "profile.json"), ParameterSet(ring_degree, coefficient_bits))

    monkeypatch.setattr(profiles, "calibrate", calibrate)
    call(monkeypatch, "export", f"root={root}", f"out={tmp_path / 'out'}", *overrides)
    return summary(tmp_path, "out"), measured


def test_export_chooses_the_parameters(root, monkeypatch, tmp_path):
    """Less to ask of truncation, and a smaller ring will do; its plans are of a profile that is measured there."""
    result, measured = exported(root, monkeypatch, tmp_path, "he.failure_bits=4")
    assert result["ring_degree"] == 8192
    assert len(measured) == 1
    profile = read_profile(tmp_path / "out" / "profile.json")
    program, _ = read_program(tmp_path / "out" / "program")
    parameters = program.parameters
    assert (parameters.ring_degree, parameters.coefficient_bits) == measured[0]
    assert (profile.ring_degree, profile.coefficient_bits) == measured[0]
    assert result["choice"]["reason"].startswith("n = 8192, q of ")
    assert sum(row.endswith("chosen") for row in result["choice"]["table"]) == 1


def test_export_keeps_the_searched_parameters_if_they_are_the_choice(root, monkeypatch, tmp_path):
    """More to ask of truncation than a smaller ring carries."""
    result, measured = exported(root, monkeypatch, tmp_path, "he.failure_bits=21")
    assert (result["ring_degree"], result["log_q"], measured) == (16384, 241, [])
    assert result["choice"]["reason"].startswith("n = 16384, q of 48+48+48+48+49 bits: the fastest that fits; ")
    assert (tmp_path / "out" / "profile.json").read_bytes() == (root / "search" / "profile.json").read_bytes()


def test_export_chooses_alike_again(root, monkeypatch, tmp_path):
    """The choice rests on the search's profile, not on what is measured after it."""
    result, measured = exported(root, monkeypatch, tmp_path)
    assert summary(root, "export")["choice"] == result["choice"]
    searched = json.loads((root / "search" / "profile.json").read_text())
    assert len(measured) == (result["log_q"] != sum(searched["coefficient_bits"]))


def test_export_takes_the_parameters_that_are_named(root, monkeypatch, tmp_path):
    named = ["he.ring_degree=16384", "he.coefficient_bits=[50,50,50,50,51]", "he.failure_bits=4"]
    result, measured = exported(root, monkeypatch, tmp_path, *named)
    assert (result["ring_degree"], result["log_q"], measured) == (16384, 251, [(16384, (50, 50, 50, 50, 51))])
    assert re.fullmatch(r"n = 8192, .* would do in 0\.\d+ of the time; he.ring_degree=0 .*", result["choice"]["reason"])


def test_named_parameters_that_are_too_small(root, monkeypatch, capsys, tmp_path):
    """Three small primes for data leave no room for the plain modulus that truncation needs; another set does."""
    profile = json.loads((root / "search" / "profile.json").read_text())
    profile["coefficient_bits"] = [46, 46, 46, 46]
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    named = [f"he.profile={tmp_path / 'profile.json'}", "he.ring_degree=16384", PROVED]
    named.append("he.coefficient_bits=[46,46,46,46]")
    error = refused(monkeypatch, capsys, "export", f"root={root}", *named, f"out={tmp_path / 'out'}")
    assert re.search(
        r"2 bits of noise budget: got -\d+ bits with n = 16384, .* truncation failure needs; n = \d+, .* would do: "
        "he.ring_degree=0 chooses it",
        error,
    ), error
    assert not (tmp_path / "out").exists()

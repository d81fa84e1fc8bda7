"""infer.py images=DIR as a user runs it: every picture a row, resumed, and what is refused before anything is asked."""

import json
import re
import signal
import subprocess
import sys
import time

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import privcirnet as pc
from privcirnet.artifact.program import write_ckks, write_program
from privcirnet.data.pictures import Pictures
from privcirnet.he.protocol.one_message import ckks
from privcirnet.he.protocol.parties.server import Server
from privcirnet.runs.pictures import ends_of, preparation_for
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.quotas import Quota, Quotas
from tests.artifact.samples import ckks_program
from tests.conftest import ROOT
from tests.page import samples
from tests.scripts import call, documented, refused, summary
from tests.service.running import catalogue, serving, until

PICTURES = 5


@pytest.fixture
def folder(tmp_path):
    """Pictures of some sizes and kinds, one of which is none."""
    folder, random = tmp_path / "pictures", np.random.default_rng(0)
    (folder / "more").mkdir(parents=True)
    for number in range(PICTURES):
        mode, name = ("L", "more/{}.jpg") if number % 2 else ("RGB", "{}.png")
        shape = (12 + number, 9, 3) if mode == "RGB" else (12, 9 + number)
        Image.fromarray(random.integers(0, 60, shape, dtype=np.uint8), mode).save(folder / name.format(number))
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture
def program(tmp_path):
    write_program(tmp_path / "program", samples.program(), {})
    return tmp_path / "program"


def classified(monkeypatch, tmp_path, *settings: str) -> list[dict]:
    """The rows that infer.py leaves in clear."""
    call(monkeypatch, "infer", f"root={tmp_path}", "engine=cleartext", *settings)
    return rows(tmp_path / "pictures_rehearsal" / "results.jsonl")


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def served(server=None, **limits):
    return serving(catalogue(only=server or Server(samples.program(), "cleartext")), **limits)


def test_every_picture_is_a_row_with_the_network_s_logits(monkeypatch, tmp_path, folder):
    """A picture is brought to the program as the page brings one; of a CKKS one, whose logits are near those in clear."""
    made = ckks_program()
    write_ckks(tmp_path / "ckks", made, {})
    settings = "mode=ckks", f"program={tmp_path / 'ckks'}", f"images={folder}", "top_k=10", "data=cifar10"
    found = classified(monkeypatch, tmp_path, *settings, f"data.root={tmp_path}")
    one = next(row for row in found if row["path"] == f"{folder}/0.png")
    known = ckks.from_dict(ckks.to_dict(made))
    picture = preparation_for(ends_of(known), "cifar10").prepare((folder / "0.png").read_bytes())
    logits = made.sums(made.real(picture.pixels[None]))[0]
    order = np.argsort(-logits, kind="stable").tolist()
    assert (one["label"], one["name"]) == (order[0], f"class {order[0]}")
    assert [each["label"] for each in one["logits"]] == order
    near = 1e-4 * np.abs(logits).max()
    assert [each["value"] for each in one["logits"]] == pytest.approx(logits[order], abs=near)
    assert one["margin"] == pytest.approx(logits[order[0]] - logits[order[1]], abs=2 * near)
    assert min(one["seconds"], one["bytes_up"], one["bytes_down"]) > 0
    assert [row["refused"].partition(":")[0] for row in found if row["label"] is None] == [
        "an image file must be whole"
    ]
    assert len(found) == PICTURES + 1


def test_rows_of_an_array_have_the_program_s_logits(monkeypatch, tmp_path):
    """Signals as the network reads them; one beyond the program's range is refused by itself."""
    torch.manual_seed(0)
    given = torch.randn(16, 3, 20)
    layers = nn.Conv1d(3, 4, 5, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3)
    program = pc.compile(nn.Sequential(*layers).eval(), given, profile="counted", progress=False)
    program.save(tmp_path / "program")
    array = given[:3].numpy().copy()
    array[1] *= 100
    np.save(tmp_path / "new.npy", array)
    settings = f"program={tmp_path / 'program'}", f"images={tmp_path / 'new.npy'}", "top_k=3"
    found = classified(monkeypatch, tmp_path, *settings)
    assert [row["path"] for row in found] == [f"{tmp_path}/new.npy[{number}]" for number in range(3)]
    assert found[1]["refused"].startswith("pixels must be in [")
    for number in (0, 2):
        logits = program(given[number : number + 1], engine="cleartext")[0]
        assert {each["label"]: each["value"] for each in found[number]["logits"]} == dict(enumerate(logits.tolist()))
        assert found[number]["name"] == f"class {logits.argmax()}"


def test_the_summary_says_what_they_come_to(monkeypatch, capsys, tmp_path, folder, program):
    found = classified(monkeypatch, tmp_path, f"program={program}", f"images={folder}")
    written, shown = summary(tmp_path, "pictures_rehearsal"), capsys.readouterr().out
    assert set(written) == documented("infer images=DIR")
    assert (written["rows"], written["asked"], written["refused"]) == (PICTURES + 1, PICTURES, 1)
    assert sum(written["classes"].values()) == PICTURES
    assert {row["version"] for row in found} == {written["version"]}
    assert re.search(rf"{PICTURES + 1}/{PICTURES + 1} ", shown)
    assert re.search(r"\d images/s, 1 without a class", shown)
    assert "NOTHING WAS ENCRYPTED" in shown


def test_what_is_in_the_results_is_not_asked_again(monkeypatch, capsys, tmp_path, folder):
    """Each image is quota: the server counts those that are new."""
    with served(books={"quotas": Quotas(Quota(images=PICTURES + 1))}) as service:
        host, port = service.address
        settings = f"server={host}:{port}", "reference=", f"images={folder}"
        first = classified(monkeypatch, tmp_path, *settings)
        assert classified(monkeypatch, tmp_path, *settings) == first
        Image.new("L", (8, 8), 30).save(folder / "new.png")
        third = classified(monkeypatch, tmp_path, *settings)
        assert third[:-1] == first
        assert third[-1]["path"] == f"{folder}/new.png"
        assert summary(tmp_path, "pictures_rehearsal")["asked"] == 1
        assert f"{PICTURES + 1} pictures are in" in capsys.readouterr().out
        Image.new("L", (8, 8), 31).save(folder / "newer.png")
        error = refused(monkeypatch, capsys, "infer", f"root={tmp_path}", "engine=cleartext", *settings)
    assert "images" in error
    assert rows(tmp_path / "pictures_rehearsal" / "results.jsonl") == third


def test_a_store_and_prepared_work(monkeypatch, tmp_path, folder):
    store = fsspec.filesystem("memory")
    for path in folder.rglob("*.*"):
        store.pipe(f"/prepared/{path.relative_to(folder)}", path.read_bytes())
    with served() as service:
        host, port = service.address
        settings = f"server={host}:{port}", "reference=", "images=memory://prepared", "prepare=2"
        found = classified(monkeypatch, tmp_path, *settings)
        ends = service.audited.of("image")
    assert len(ends) == PICTURES
    assert sum(row["prepared"] for row in found) == PICTURES
    assert found[0]["path"] == "memory:///prepared/0.png"


def test_a_slow_store_outlasts_the_server_s_patience(monkeypatch, tmp_path, folder):
    """The server hangs up on a silent client, which comes again with the next picture."""

    def slow(own, file, preparation, read=Pictures.read):
        time.sleep(0.6 if file.path.endswith("1.jpg") else 0.0)
        return read(own, file, preparation)

    monkeypatch.setattr(Pictures, "read", slow)
    with served(limits=ServiceLimits(timeout_s=0.3)) as service:
        host, port = service.address
        found = classified(monkeypatch, tmp_path, f"server={host}:{port}", "reference=", f"images={folder}")
    assert sum(row["label"] is not None for row in found) == PICTURES
    assert len(service.audited.of("session opened")) > 1


def test_results_of_another_program_or_other_pictures(monkeypatch, capsys, tmp_path, folder, program):
    classified(monkeypatch, tmp_path, f"program={program}", f"images={folder}")
    write_program(tmp_path / "other", samples.program(), {"another": 1})
    settings = f"root={tmp_path}", "engine=cleartext"
    error = refused(monkeypatch, capsys, "infer", *settings, f"program={tmp_path / 'other'}", f"images={folder}")
    assert "results must be of one version of a program: got " in error
    error = refused(monkeypatch, capsys, "infer", *settings, f"program={program}", f"images={folder / 'more'}")
    assert "results must be those of the same images=: got " in error


def test_a_data_set_that_is_not_the_program_s(monkeypatch, capsys, tmp_path, folder):
    write_program(tmp_path / "program", samples.program(3, 255), {})
    settings = f"root={tmp_path}", "engine=cleartext", f"program={tmp_path / 'program'}", f"images={folder}"
    error = refused(monkeypatch, capsys, "infer", *settings)
    assert "must have the size of the program's: got (1, 8, 8) for (3, 8, 8); give the program's data set" in error
    found = classified(monkeypatch, tmp_path, *settings[2:], "data=imagefolder", "data.root=nowhere")
    assert found[0]["name"] == f"class {found[0]['label']}"
    assert "Classes are numbers: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["images=3o2"], "images= must be a number of held-out images, or a folder .* got 3o2: nothing is there"),
        (["images=-1"], "images must be at least 1: got -1; use 32"),
        (["images="], "images must be a number, or a folder of pictures: got nothing"),
        (["images=2.5"], "settings must exist and have the right type: got images=2.5"),
        (["images=docs", "ui=true"], "a folder of pictures is not for the page: got docs"),
        (["images=docs", "results=r.csv"], "results must be JSON lines or Parquet: got r.csv; use results=FILE.jsonl"),
        (["images=docs", "top_k=0"], "top_k must be at least 1: got 0"),
        (["results=r.jsonl"], "results is for a folder of pictures: got r.jsonl; give images=DIR"),
        (["images=docs/site"], "a folder must have pictures: got none in docs/site"),
    ],
)
def test_bad_settings(monkeypatch, capsys, tmp_path, settings, match):
    assert re.search(match, refused(monkeypatch, capsys, "infer", f"root={tmp_path}", *settings))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_continues(tmp_path, program, folder):
    """Every picture has one row, however often the run was killed."""
    for number in range(40):
        Image.new("L", (8, 8), number).save(folder / f"more{number:02}.png")
    path = tmp_path / "r.jsonl"
    settings = f"root={tmp_path}", "engine=cleartext", f"program={program}", f"images={folder}", f"results={path}"
    command = [sys.executable, "infer.py", *settings]
    for least in (1, 12, 24):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            until(lambda least=least: path.is_file() and path.read_bytes().count(b"\n") >= least, 60)
            process.send_signal(signal.SIGKILL)
        path.write_bytes(path.read_bytes() + b'{"path": "/to')
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found = [row["path"] for row in rows(path)]
    assert sorted(found) == sorted(file.path for file in Pictures(str(folder)).files())

import csv
import dataclasses
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from privcirnet.config import TrainConfig
from privcirnet.errors import RuleError
from privcirnet.report import plots
from privcirnet.train import checkpoint, record
from privcirnet.train.loop import fit
from privcirnet.train.record import EpochProgress, Step
from tests.train.runs import DATA, RECIPE, SETTINGS, Interrupted, small

STEPS = 7
"""An epoch of 100 images in batches of 16."""


def run(folder, tensorboard=False, stop=None) -> list[str]:
    """A run as the script does it, interrupted after a step; returns its lines for people."""
    start = checkpoint.load(folder, SETTINGS)
    lines = []
    with record.Record(folder, tensorboard, start, 50.0) as book:

        def after_step(step: Step) -> None:
            lines.append(book.step(step))
            if step.number == stop:
                raise Interrupted

        def after_epoch(progress: EpochProgress) -> None:
            lines.append(book.epoch(progress.history))
            checkpoint.save(folder, progress, SETTINGS)

        fit(small(), DATA, RECIPE, 0, start=start, after_epoch=after_epoch, after_step=after_step)
    return lines


def scalars(folder) -> dict[str, list]:
    """What TensorBoard shows."""
    shown = EventAccumulator(str(folder / record.EVENTS), size_guidance={"scalars": 0})
    shown.Reload()
    return {tag: found for tag in shown.Tags()["scalars"] if (found := shown.Scalars(tag))}


def rows(folder) -> list[dict[str, str]]:
    with (folder / record.TABLE).open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_that_is_interrupted_twice_is_recorded_once(tmp_path):
    for stop, epochs in ((2 * STEPS + 3, 2), (3 * STEPS + 1, 3)):
        with pytest.raises(Interrupted):
            run(tmp_path, True, stop)
        assert [row["epoch"] for row in rows(tmp_path)] == [str(n + 1) for n in range(epochs)]
    run(tmp_path, True)
    history = checkpoint.load(tmp_path, SETTINGS).history
    for row, entry in zip(rows(tmp_path), history, strict=True):
        assert tuple(row) == record.COLUMNS
        assert {name: float(value) for name, value in row.items()} == pytest.approx(entry, rel=1e-5)
    shown = scalars(tmp_path)
    assert [e.step for e in shown["step/loss"]] == list(range(1, 4 * STEPS + 1))
    assert [e.step for e in shown["epoch/top1"]] == [STEPS, 2 * STEPS, 3 * STEPS, 4 * STEPS]
    assert [e.value for e in shown["epoch/top1"]] == pytest.approx([entry["top1"] for entry in history])
    assert set(shown) == {"step/loss", "step/learning_rate", "epoch/loss", "epoch/top1", "epoch/images_per_second"}
    whole = tmp_path / "whole"
    run(whole, True)
    for tag in ("step/loss", "step/learning_rate", "epoch/loss", "epoch/top1"):
        assert [(e.step, e.value) for e in shown[tag]] == [(e.step, e.value) for e in scalars(whole)[tag]]


def test_a_run_that_starts_over_hides_the_events_before(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path, True, STEPS + 2)
    checkpoint.remove(tmp_path)
    with pytest.raises(Interrupted):
        run(tmp_path, True, 3)
    assert [e.step for e in scalars(tmp_path)["step/loss"]] == [1, 2, 3]
    assert "epoch/top1" not in scalars(tmp_path)


def test_lines_for_people(tmp_path):
    lines = run(tmp_path)
    assert not (tmp_path / record.EVENTS).exists()
    first, second = rows(tmp_path)[:2]
    assert lines[0].startswith("loss ")
    assert "  top-1 50.00 %  " in lines[0]
    assert lines[0].endswith(" images/s")
    assert lines[STEPS].startswith(f"loss {float(first['loss']):.3f}  top-1 {float(first['top1']):.2f} %  ")
    assert f"top-1 {float(first['top1']):.2f} %" in lines[STEPS + 1]
    assert f"top-1 {float(second['top1']):.2f} %" in lines[2 * STEPS + 1]


def test_a_full_disk_keeps_the_table(tmp_path, file_limit):
    run(tmp_path)
    before = (tmp_path / record.TABLE).read_bytes()
    book = record.Record(tmp_path, False, None, 0.0)
    file_limit(len(before))
    history = checkpoint.load(tmp_path, SETTINGS).history
    with pytest.raises(RuleError, match=r"a disk must have room .*: got .*history.csv: File too large"):
        book.epoch([*history, {**history[-1], "epoch": 5}])
    assert (tmp_path / record.TABLE).read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_stops_the_events(tmp_path, file_limit):
    book = record.Record(tmp_path, True, None, 0.0)
    file_limit(1000)
    steps = (Step(number, 0.1, 1.0, 1.0, 0.1, 1.0) for number in range(1000))
    message = r"a disk must have room .*: got .*events.out.*: File too large"
    with pytest.raises(RuleError, match=message):
        all(map(book.step, steps))
    with pytest.raises(RuleError, match=message), book:
        pass


def test_a_missing_tensorboard_is_one_line(monkeypatch):
    assert TrainConfig(tensorboard=True).tensorboard
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(RuleError, match="needs the package tensorboard: got none installed"):
        TrainConfig(tensorboard=True)
    assert not TrainConfig().tensorboard


def test_a_table_of_no_epochs_and_of_an_earlier_version():
    assert record.table([]) == "epoch,loss,top1,learning_rate,images_per_second,seconds\n"
    assert record.table([{"epoch": 1, "loss": 0.25, "top1": 50.0}]).splitlines()[1] == "1,0.25,50,,,"


@pytest.mark.parametrize("epochs", [1, 4, 100])
def test_curves(tmp_path, monkeypatch, epochs):
    drawn, save = [], plots.save
    monkeypatch.setattr(plots, "save", lambda figure, path: (drawn.append(figure), save(figure, path)))
    history = [
        {"epoch": n, "loss": 1 / n, "top1": 50 + 20 * (n == 3), "learning_rate": 1e-3 * n} for n in range(1, epochs + 1)
    ]
    record.picture(tmp_path, history, "a title")
    assert [path.name for path in tmp_path.iterdir()] == [record.CURVES]
    assert (tmp_path / record.CURVES).read_bytes().startswith(b"\x89PNG")
    loss, top1, rate = drawn[0].axes
    assert loss.get_title() == "a title"
    assert [axes.get_ylabel() for axes in (loss, top1, rate)] == [
        "training loss, nats",
        "held-out top-1, %",
        "learning rate",
    ]
    assert rate.get_xlabel() == "epoch"
    for axes, name in ((loss, "loss"), (top1, "top1"), (rate, "learning_rate")):
        assert axes.lines[0].get_xdata().tolist() == [entry["epoch"] for entry in history]
        assert axes.lines[0].get_ydata().tolist() == [entry[name] for entry in history]
    best = "best 70.00 % in epoch 3" if epochs >= 3 else "best 50.00 % in epoch 1"
    assert top1.get_legend().get_texts()[0].get_text() == f"{best}, last 50.00 %"
    assert all(tick == int(tick) for tick in rate.get_xticks())


def test_no_curves_of_no_epochs_and_none_on_a_full_disk(tmp_path, file_limit):
    record.picture(tmp_path, [], "nothing")
    file_limit(1000)
    with pytest.raises(RuleError, match=r"a disk must have room .*: got .*curves.png: File too large"):
        record.picture(tmp_path, [{"epoch": 1, "loss": 1.0, "top1": 1.0}], "title")
    assert not list(tmp_path.iterdir())


def test_the_record_changes_no_weight(tmp_path):
    run(tmp_path / "shown", True)
    quiet, shown = small(), checkpoint.load(tmp_path / "shown", SETTINGS).state["model"]
    fit(quiet, DATA, dataclasses.replace(RECIPE), 0)
    assert all((shown[name] == value).all() for name, value in quiet.state_dict().items())

"""The state of an interrupted run: who may resume it, and that it is never lost."""

import pytest
import torch

from privcirnet.errors import RuleError
from privcirnet.train import checkpoint
from privcirnet.train.record import EpochProgress
from tests.train.runs import SETTINGS, saved


def test_other_settings_are_not_resumed(tmp_path):
    progress = saved(tmp_path / "run")
    assert checkpoint.load(tmp_path / "run", SETTINGS).history == progress.history
    for change, text in [
        ({"seed": 1}, "seed=1 after 0"),
        ({"block_sizes": {"0": 4}}, "block_sizes.0=4 after 2"),
        ({"recipe": {**SETTINGS["recipe"], "epochs": 5}}, "recipe.epochs=5 after 4"),
        ({"new": 3}, "new=3 after None"),
    ]:
        with pytest.raises(
            RuleError, match=f"an interrupted run must be resumed with its settings: got {text} for {tmp_path}"
        ):
            checkpoint.load(tmp_path / "run", {**SETTINGS, **change})
    assert checkpoint.load(tmp_path / "run", SETTINGS).epoch == 1, "it is still there"
    assert checkpoint.load(tmp_path / "nowhere", SETTINGS) is None


def test_other_settings_are_refused_before_the_network_is_prepared(tmp_path):
    saved(tmp_path)
    known = {name: value for name, value in SETTINGS.items() if name not in checkpoint.PREPARED}
    assert known.keys() < SETTINGS.keys()
    checkpoint.check(tmp_path, known)
    checkpoint.check(tmp_path / "nowhere", known)
    with pytest.raises(RuleError, match=r"with its settings: got seed=1 after 0 for"):
        checkpoint.check(tmp_path, {**known, "seed": 1})


def test_settings_that_a_run_can_go_on_without(tmp_path):
    saved(tmp_path)
    recipe = {**SETTINGS["recipe"], "learning_rate": 1e-4, "clip_gradient": 1.0}
    changed = {**SETTINGS, "recipe": recipe, "resume": True, "tensorboard": True, "data": {"root": "elsewhere"}}
    assert checkpoint.load(tmp_path, changed).epoch == 1


def test_a_complete_run_leaves_no_state(tmp_path):
    saved(tmp_path)
    checkpoint.remove(tmp_path)
    checkpoint.remove(tmp_path)
    assert checkpoint.load(tmp_path, SETTINGS) is None
    assert not list(tmp_path.iterdir())


def test_a_state_that_fails_to_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    progress = saved(tmp_path)

    def failing(_: object, file: object) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path, EpochProgress(epoch=9), SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]
    assert checkpoint.load(tmp_path, SETTINGS).epoch == progress.epoch


@pytest.mark.parametrize("numbers", [1_000, 200_000])
def test_a_state_on_a_full_disk_leaves_the_old_one(tmp_path, file_limit, numbers):
    """The system's error may come when the file is closed, or be wrapped in one of torch's own."""
    progress = saved(tmp_path)
    path = tmp_path / checkpoint.NAME
    file_limit(2 * numbers)
    with pytest.raises(RuleError, match=f"a disk must have room .*: got {path}: File too large"):
        checkpoint.save(tmp_path, EpochProgress(9, [], {"model": torch.zeros(numbers)}), SETTINGS)
    assert list(tmp_path.iterdir()) == [path]
    assert checkpoint.load(tmp_path, SETTINGS).epoch == progress.epoch


def test_another_place_of_what_it_started_from_is_no_other_setting(tmp_path):
    recipe = {**SETTINGS["recipe"], "init": "here/train", "plan": "here/cells/one/plan.json"}
    before = {**SETTINGS, "root": "here", "recipe": recipe}
    checkpoint.save(tmp_path, EpochProgress(epoch=1), before)
    moved = {**recipe, "init": "/there/train", "plan": "/there/cells/another/plan.json"}
    assert checkpoint.load(tmp_path, {**before, "root": "/there", "recipe": moved}).epoch == 1
    with pytest.raises(RuleError, match=r"recipe.init=other/train after train"):
        checkpoint.load(tmp_path, {**before, "recipe": {**recipe, "init": "other/train"}})


@pytest.mark.parametrize("data", [b"", b"no state", b"PK\x03\x04 half of one"])
def test_a_damaged_state_is_refused(tmp_path, data):
    (tmp_path / checkpoint.NAME).write_bytes(data)
    with pytest.raises(RuleError, match="the state of an interrupted run must be whole: got"):
        checkpoint.load(tmp_path, SETTINGS)

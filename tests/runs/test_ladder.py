"""The ladder with stages that only leave a summary: what is run again, and what is not."""

import functools
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from privcirnet.cli import ladder
from privcirnet.cli.settings import composed
from privcirnet.config import LadderConfig
from privcirnet.config.ladder import stage_of
from privcirnet.errors import RuleError

ROOT = Path(__file__).parents[2]
compose = functools.cache(lambda name, schema, overrides: composed(name, schema, list(overrides)))
ALL = ["train", "search", "finetune", "qat", "export", "infer"]


def chain(root, *overrides):
    """The stages of the digits' experiment."""
    given = [f"root={root}", *overrides]
    return ladder.stages(composed("ladder", LadderConfig, given), lambda n, s, o: compose(n, s, tuple(o)))


def write(stage):
    """Leave a stage's result."""
    stage.summary.parent.mkdir(parents=True, exist_ok=True)
    stage.summary.write_text(json.dumps({"stage": stage_of(stage.name), "config": asdict(stage.settings)}))
    return 0


class Interrupted(Exception):
    pass


class Runner:
    """Runs stages, until one is interrupted: as it starts, or after it has left its result."""

    def __init__(self, interrupted="", at_its_end=False):
        self.ran, self.interrupted, self.at_its_end = [], interrupted, at_its_end

    def __call__(self, stage):
        self.ran.append(stage.name)
        if stage.name == self.interrupted and not self.at_its_end:
            stage.summary.parent.mkdir(parents=True, exist_ok=True)
            (stage.summary.parent / "resume.pt").touch()
            raise Interrupted
        (stage.summary.parent / "resume.pt").unlink(missing_ok=True)
        write(stage)
        if stage.name == self.interrupted:
            raise Interrupted
        return 0


def climbed(stages, until="", runner=None):
    """Names of the stages that were run."""
    runner = runner or Runner()
    assert ladder.climb(stages, until, runner, lambda *_: None) == 0
    return runner.ran


@pytest.mark.slow
@pytest.mark.parametrize("at_its_end", [False, True])
@pytest.mark.parametrize("interrupted", ALL)
def test_what_is_missing_is_run(tmp_path, interrupted, at_its_end):
    with pytest.raises(Interrupted):
        climbed(chain(tmp_path), runner=Runner(interrupted, at_its_end))
    assert climbed(chain(tmp_path)) == ALL[ALL.index(interrupted) + at_its_end :]
    assert climbed(chain(tmp_path)) == []


def test_it_stops_where_it_should(tmp_path):
    assert climbed(chain(tmp_path), "search") == ["train", "search"]
    assert climbed(chain(tmp_path)) == ALL[2:]
    assert [stage.name for stage in chain(tmp_path, "chain=[train,search]")] == ["train", "search"]


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", ALL[1:])
def test_a_changed_stage_is_redone_with_those_behind_it(tmp_path, interrupted):
    """Even if it is interrupted in between, and its settings are the old ones again."""
    climbed(chain(tmp_path))
    changed = chain(tmp_path, "stages.search.budget=b8")
    assert changed[1].changes() == ["budget=b8 after b4"]
    with pytest.raises(Interrupted):
        climbed(changed, runner=Runner(interrupted))
    before = ALL[1:] if interrupted == "search" else ALL[ALL.index(interrupted) :]
    assert climbed(chain(tmp_path, "stages.search.budget=b8")) == before
    assert climbed(chain(tmp_path)) == ALL[1:]


def test_an_interrupted_run_is_kept_unless_what_it_started_from_is_replaced(tmp_path):
    with pytest.raises(Interrupted):
        climbed(chain(tmp_path), runner=Runner("finetune"))
    state = tmp_path / "finetune" / "resume.pt"
    assert state.exists()
    with pytest.raises(Interrupted):
        climbed(chain(tmp_path), runner=Runner("finetune"))
    assert state.exists()
    climbed(chain(tmp_path, "stages.train.recipe.epochs=7"), "train")
    assert not state.exists()
    assert climbed(chain(tmp_path, "stages.train.recipe.epochs=7")) == ALL[1:]


def test_a_leftover_of_a_complete_run_does_not_stop_the_next(tmp_path):
    """train.py removes its state after it wrote its summary; it may be killed in between."""
    climbed(chain(tmp_path))
    (tmp_path / "train" / "resume.pt").touch()
    with pytest.raises(Interrupted):
        climbed(chain(tmp_path, "stages.train.recipe.epochs=7"), runner=Runner("train", at_its_end=True))
    assert not (tmp_path / "train" / "resume.pt").exists()


@pytest.mark.slow
def test_results_do_not_depend_on_where_they_are(tmp_path):
    climbed(chain(tmp_path / "here"))
    (tmp_path / "here").rename(tmp_path / "there")
    assert climbed(chain(tmp_path / "there", "data.root=/elsewhere")) == []


def test_a_failing_stage_stops_the_ladder(tmp_path):
    told = []
    status = ladder.climb(
        chain(tmp_path),
        "",
        lambda stage: 2 if stage.name == "search" else write(stage),
        lambda stage, changes: told.append((stage.name, changes)),
    )
    assert status == 2
    assert told == [("train", None), ("search", None)]
    assert climbed(chain(tmp_path)) == ALL[1:]


@pytest.mark.slow
def test_settings_are_checked_before_anything_runs(tmp_path):
    with pytest.raises(RuleError, match=r"settings must exist and have the right type: got recipe.epoch; "):
        chain(tmp_path, "+stages.qat.recipe.epoch=3")
    with pytest.raises(RuleError, match="images must be at least 1: got 0"):
        chain(tmp_path, "stages.infer.images=0")
    with pytest.raises(RuleError, match="stages must have known stages: got fintune"):
        chain(tmp_path, "+stages.fintune.recipe.epochs=3")
    with pytest.raises(RuleError, match=r"must have stages in order: got \['search', 'train'\]"):
        chain(tmp_path, "chain=[search,train]")
    with pytest.raises(RuleError, match=r"what is not there yet takes a plus: \+recipe.epochs=1"):
        chain(tmp_path, "recipe.epochs=1")
    for wrong, message in [
        ("[train,train]", "stands in chain once: got train"),
        ("[train,qat_more,replace]", "must have stages in order"),
        ("[train,more_qat]", "chain must have known stages: got more_qat"),
        ("[]", "chain must have a stage"),
    ]:
        with pytest.raises(RuleError, match=message):
            chain(tmp_path, f"chain={wrong}")
    with pytest.raises(RuleError, match="until must be a known one: got 'replace'"):
        chain(tmp_path, "until=replace")
    assert not list(tmp_path.iterdir())


def test_a_stage_may_come_again_under_a_name_of_its_own(tmp_path):
    """With the settings of the first and its own, from the network before it, in a folder of its own."""
    stages = chain(
        tmp_path,
        "chain=[train,finetune,replace,replace_more,replace_mean,qat,export]",
        "+stages.replace.recipe={epochs: 3, outlier_penalty: 0.1}",
        "+stages.replace_more.recipe={epochs: 2, optimizer: muon}",
        "+stages.replace_mean.recipe={epochs: 0, init: '${root}/replace'}",
    )
    _, _, first, more, mean, qat, export = (stage.settings for stage in stages)
    assert [stage.script for stage in stages] == ["train"] * 6 + ["export"]
    assert [Path(each.out).name for each in (first, more, mean, qat)] == [
        "replace",
        "replace_more",
        "replace_mean",
        "qat",
    ]
    inits = [each.recipe.init for each in (first, more, mean, qat)]
    assert [Path(path).name for path in inits] == ["finetune", "replace", "replace", "replace_mean"]
    assert Path(export.init).name == "qat"
    assert [(r.epochs, r.outlier_penalty, r.optimizer) for r in (first.recipe, more.recipe)] == [
        (3, 0.1, "adamw"),
        (2, 0.1, "muon"),
    ]
    for stage in stages:
        write(stage)
    assert climbed(stages) == []
    (tmp_path / "replace_more" / "summary.json").unlink()
    assert climbed(stages) == ["replace_more", "replace_mean", "qat", "export"]


def test_plans_race_by_the_recipe_of_fine_tuning():
    stages = {"search": {"race": 20}, "finetune": {"recipe": {"learning_rate": 8e-3}, "seed": 1}}
    words = ladder.overrides(LadderConfig(root="here", recipe={"batch_size": 128}, stages=stages), "search")
    assert {"race=20", "recipe.batch_size=128", "recipe.learning_rate=0.008"} < set(words)
    assert not any(word.startswith("seed") for word in words)
    assert not any("recipe" in word for word in ladder.overrides(LadderConfig(root="here"), "search"))


def test_values_arrive_as_they_are(tmp_path):
    config = composed("ladder", LadderConfig, ["model=resnet18_tiny", "experiment=digits"])
    config.root, config.data.root, config.data.size = str(tmp_path / "it's, here=there"), "/my images", 64
    config.model.arguments = {"width": 32, "activation": "aespa"}
    config.stages["search"] = {"block_sizes": [1, 4], "budget": 1e-3, "he": {"link": "lan"}}
    first, search, *_ = ladder.stages(config, composed)
    assert first.settings.root == config.root
    assert (first.settings.data.root, first.settings.data.size) == ("/my images", 64)
    assert first.settings.model == config.model
    assert search.settings.block_sizes == [1, 4]
    assert (search.settings.budget, search.settings.he.link) == (1e-3, "lan")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1e3", "null", "True", "-.5", "inf", "1_0", "v1.2", "nullable"])
def test_text_that_looks_like_something_else_stays_text(tmp_path, name):
    config = composed("ladder", LadderConfig, ["experiment=digits"])
    config.data.root = name
    assert ladder.stages(config, composed)[0].settings.data.root == name


def test_a_measurement_in_a_stage_s_folder_is_not_its_result(tmp_path):
    climbed(chain(tmp_path))
    held = json.loads((tmp_path / "train" / "summary.json").read_text()) | {"stage": "evaluate"}
    (tmp_path / "train" / "summary.json").write_text(json.dumps(held))
    assert chain(tmp_path)[0].changes() is None


def test_folders_differ_in_case(tmp_path):
    climbed(chain(tmp_path, "+stages.finetune.recipe.teacher=elsewhere/A"))
    changed = chain(tmp_path, "+stages.finetune.recipe.teacher=elsewhere/a")[2].changes()
    assert changed == ["recipe.teacher=elsewhere/a after elsewhere/A"]


def test_a_root_is_for_one_ladder_and_the_scripts_it_started(tmp_path):
    program = "import sys; print(flush=True); sys.stdin.read()"
    with ladder.alone(tmp_path) as held:
        script = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(held,)
        )
        with pytest.raises(RuleError, match=f"one ladder at a time: got {tmp_path}"), ladder.alone(tmp_path):
            pass
    script.stdout.readline()
    with pytest.raises(RuleError, match="one ladder at a time"), ladder.alone(tmp_path):
        pass
    script.communicate()
    with ladder.alone(tmp_path):
        pass


def test_a_script_s_status_is_the_ladder_s(tmp_path):
    with ladder.alone(tmp_path) as held:
        assert ladder.run([sys.executable, "-c", "raise SystemExit(3)"], held) == 3
        assert ladder.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], held) == 137


def test_an_interrupted_ladder_ends_its_script(tmp_path, monkeypatch):
    started = []

    class Waiting(subprocess.Popen):
        def wait(self, timeout=None):
            if len(started) < 2:  # pressed once, the script ends by itself
                started.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Waiting)
    with ladder.alone(tmp_path) as held, pytest.raises(KeyboardInterrupt):
        ladder.run([sys.executable, "-c", "import time; time.sleep(60)"], held)
    assert started[0].wait() == -15

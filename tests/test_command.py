"""The command `privcirnet`: its help, its one-line errors, what it imports, and what a shell is offered."""

import subprocess
import sys
from pathlib import Path

import pytest

from privcirnet import __main__ as command
from privcirnet.cli import SUBCOMMANDS
from privcirnet.cli.console import as_started
from tests.conftest import ROOT


def run(monkeypatch, capsys, *words):
    """Run the command in this process; its status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["privcirnet", *words])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    return stopped.value.code, *capsys.readouterr()


def test_every_subcommand_has_a_module_and_every_script_is_one():
    modules = {path.stem for path in (ROOT / "privcirnet" / "cli").glob("*.py")} - {
        "__init__",
        "console",
        "explain",
        "pictures",
        "settings",
    }
    assert modules == set(SUBCOMMANDS)
    scripts = {path.stem for path in ROOT.glob("*.py")}
    scripts -= {"bench", "reproduce"}  # of benchmarks/ and papers/, which no wheel has
    assert scripts == modules - {"demo", "doctor", "completion"}
    for name in scripts:
        assert f"from privcirnet.cli.{name} import main\n" in (ROOT / f"{name}.py").read_text()


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_has_a_line_for_each_subcommand(monkeypatch, capsys, words):
    monkeypatch.setenv("COLUMNS", "80")
    status, told, _ = run(monkeypatch, capsys, *words)
    assert status == 0
    lines = [line.split(maxsplit=1) for line in told.splitlines()]
    assert all([name, does] in lines for name, does in SUBCOMMANDS.items())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("trian", "did you mean train?"), ("xyz", "privcirnet --help lists them"), ("--hepl", "privcirnet --help lists")],
)
def test_an_unknown_subcommand(monkeypatch, capsys, name, remedy):
    status, _, error = run(monkeypatch, capsys, name)
    assert status == 2
    assert error.startswith(f"error: the subcommand must be a known one: got '{name}'")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_errors_and_help_name_the_command_that_was_started(monkeypatch, capsys, tmp_path):
    status, _, error = run(monkeypatch, capsys, "infer", f"program={tmp_path / 'train.py'}")
    assert status == 2
    assert f"got {tmp_path}/train.py/manifest.json; export it again with privcirnet export\n" in error
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert as_started("run `python train.py recipe=qat`") == "run `python train.py recipe=qat`"
    told = subprocess.run(
        [sys.executable, "-m", "privcirnet", "train", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith("privcirnet train: train a dense network")
    assert "  privcirnet train recipe=finetune " in told


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_needs_no_library(subprocess_python, words):
    program = (
        "import contextlib, io, sys; from privcirnet.__main__ import main\n"
        f"sys.argv[1:] = {words}\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()\n"
        "print(*{'torch', 'hydra', 'numpy', 'rich', 'numba'} & set(sys.modules))"
    )
    assert subprocess_python(program) == ""


def offered(line: str, folder: Path) -> list[str]:
    """What a shell is offered after a line."""
    answer = folder / "answer"
    environment = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n"}
    environment |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_SHELL": "zsh", "PATH": ""}
    program = "import sys; sys.modules['torch'] = None; from privcirnet.__main__ import main; main()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
    return [word.split(":")[0].strip() for word in answer.read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("privcirnet se", ["search", "serve"]),
        (
            "privcirnet train recipe=",
            ["recipe=finetune", "recipe=gpu", "recipe=qat", "recipe=replace", "recipe=train", "recipe=transfer"],
        ),
        ("privcirnet train recipe.warm", ["recipe.warmup_epochs="]),
        ("privcirnet demo unt", ["until="]),
        ("privcirnet completion f", ["fish"]),
        ("privcirnet doctor ", []),
    ],
)
def test_a_shell_is_offered_subcommands_settings_and_options_of_groups(tmp_path, line, words):
    assert [word for word in offered(line, tmp_path) if word] == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_registered(monkeypatch, capsys, shell):
    monkeypatch.setattr(sys, "argv", ["privcirnet", "completion", shell])
    command.main()
    assert "privcirnet" in capsys.readouterr().out


@pytest.mark.parametrize(("error", "said"), [("KeyboardInterrupt", "KeyboardInterrupt"), ("ValueError", "Traceback")])
def test_a_command_that_is_interrupted_while_it_starts_says_so_in_one_line(error, said):
    words = [sys.executable, "-c", f"import privcirnet.cli; raise {error}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert done.stderr.startswith(said)
    assert (done.stderr.count("\n") == 1) == (error == "KeyboardInterrupt")

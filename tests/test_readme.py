"""The README's commands parse and its Python runs."""

import re
import shlex
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(
    r"^(?:python|torchrun --nproc-per-node=\d+) (\w+)\.py(.*?)(?:\s+#.*)?$", README, flags=re.MULTILINE
)
PROGRAMS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_readme_has_commands_and_programs():
    assert len(COMMANDS) >= 8
    assert len(PROGRAMS) >= 1


@pytest.mark.parametrize(("script", "arguments"), COMMANDS, ids=[f"{s}{a}" for s, a in COMMANDS])
def test_commands_parse(script, arguments):
    assert (ROOT / f"{script}.py").is_file()
    if script == "report":
        return
    __import__(script)
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        assert OmegaConf.to_object(hydra.compose(script, overrides=shlex.split(arguments)))


def test_programs_run():
    for program in PROGRAMS:
        exec(compile(program, "README.md", "exec"), {})


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", re.findall(r"\]\(([\w/.]+)\)", README))
def test_links_exist(name):
    assert (ROOT / name).exists()

"""The built packages: what is in them, and that a wheel alone does in an empty folder what a checkout does.

The wheel is installed, without what it depends on, into an environment of its own that borrows this one's libraries.
"""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
CLEARTEXT = [
    *("stages.train.recipe.epochs=1", "stages.finetune.recipe.epochs=1", "stages.qat.recipe.epochs=1"),
    *("++stages.search.he.profile=counted", "++stages.export.he.ring_degree=16384", "stages.infer.images=2"),
    *("++stages.export.he.coefficient_bits=[48,48,48,48,49]", "++stages.infer.engine=cleartext"),
]
"""The whole chain, where compiling the server's kernels for a new place would take most of the time."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("privcirnet-*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    install = [*PIP, "--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    library = next(folder.glob("lib/python*/site-packages"))
    (library / "borrowed.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    return folder / "bin" / "python"


def run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with nothing of this checkout in sight."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python.parent / "privcirnet"), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_configs_licence_and_type_marker_and_nothing_of_the_top_level(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    configs = {str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.yaml")}
    assert {name.removeprefix("privcirnet/") for name in names if name.startswith("privcirnet/configs/")} == configs
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "privcirnet").rglob("*.py")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "privcirnet" / "page" / "static").iterdir()}
    assert (
        modules | page | {f"privcirnet/{name}" for name in ("py.typed", "report/page.html", "report/base.css")} <= names
    )
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"privcirnet"}


def test_the_source_distribution_is_a_checkout(tmp_path):
    build = "import hatchling.build, sys; print(hatchling.build.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "privcirnet/py.typed",
        "papers/__init__.py",
        "configs/train.yaml",
        "train.py",
        "Makefile",
        "docs/install.md",
    } <= names
    assert not [name for name in names if name.startswith((".venv", "outputs")) or "__pycache__" in name]


def test_the_doctor_is_content(python, tmp_path):
    done = run(python, tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    assert f"{python.parents[1]}/lib/" in done.stdout, "it is the checkout's package that was examined"
    assert f"machine code is kept in {python.parents[1]}/lib/" in done.stdout


def test_the_demo_leaves_a_page_in_an_empty_folder(python, tmp_path):
    done = run(python, tmp_path, "demo", *CLEARTEXT)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.rstrip().endswith("Report: outputs/demo/report.html")
    assert "-m privcirnet train root=outputs/demo recipe=qat" in done.stdout
    assert "<svg" in (tmp_path / "outputs" / "demo" / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
    again = run(python, tmp_path, "demo", *CLEARTEXT)
    assert again.stdout.count(": complete") == 6
    assert not [line for line in again.stdout.splitlines() if "-m privcirnet" in line]


@pytest.mark.parametrize("where", [["hydra.searchpath=[file://mine]"], ["--config-dir", "mine"]])
def test_settings_of_ones_own_lie_in_a_folder_of_ones_own(python, tmp_path, where):
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "mine.yaml").write_text("name: mnist\nroot: nowhere\n")
    done = run(python, tmp_path, "train", *where, "data=mine")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert f"got no file or folder {tmp_path}/nowhere; put train-images-idx3-ubyte" in done.stderr

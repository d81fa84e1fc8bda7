"""Machine code of kernels on disk: what is old is not run, and what cannot be kept costs a warning."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from privcirnet.he.system import jit

PACKAGE = Path(jit.__file__).parents[2]

KERNEL = "from privcirnet.he.kernels.helper import helped\nfrom privcirnet.he.system.jit import jit\n\n\n"
KERNEL += "@jit\ndef kernel(values):\n    return values[helped(1)]\n"
HELPER = "from privcirnet.he.system.jit import inline\n\n\n@inline\ndef helped(x):\n    return x + {}\n"
CALL = "import numpy; from privcirnet.he.kernels.kernel import kernel; "
CALL += "print(int(kernel(numpy.arange(4.0))), *kernel.stats.cache_hits.values())"

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of one kernel and another file's function in it, compiled as ours are."""
    folder, system = (tmp_path / "privcirnet" / "he" / name for name in ("kernels", "system"))
    for room in (folder, system):
        room.mkdir(parents=True)
        for package in (room, *room.parents[:2]):
            (package / "__init__.py").touch()
    shutil.copy(jit.__file__, system)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "helper.py").write_text(HELPER.format(1))
    return folder


@pytest.fixture(params=["beside the sources", "NUMBA_CACHE_DIR"])
def kept_in(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return {} if request.param == "beside the sources" else {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Call the kernel in a fresh process; prints its result and whether it was on disk."""

    def fresh(**environment: str) -> subprocess.CompletedProcess[str]:
        own = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
        own |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        line = [sys.executable, "-c", CALL]
        return subprocess.run(line, env=own, cwd=tmp_path, capture_output=True, text=True, check=False)

    return fresh


def machine_code(folder: Path) -> set[Path]:
    return set(folder.rglob("*.nb[ic]"))


@pytest.mark.slow
def test_a_change_of_another_file_is_compiled(package: Path, kept_in: dict[str, str], call: Call) -> None:
    """Wherever machine code is kept; what was compiled from other sources is removed."""
    assert call(**kept_in).stdout == "2\n"
    before = machine_code(package.parents[2])
    assert call(**kept_in).stdout == "2 1\n", "it is on disk"
    (package / "helper.py").write_text(HELPER.format(2))
    assert call(**kept_in).stdout == "3\n"
    after = machine_code(package.parents[2])
    assert len(after) == len(before) == 2
    assert not after & before


def test_bounds_are_checked_when_asked_for(package: Path, call: Call) -> None:
    """Numba would run what it has on disk, compiled without."""
    (package / "helper.py").write_text(HELPER.format(3))
    assert call().returncode == 0
    assert "IndexError" in call(NUMBA_BOUNDSCHECK="1").stderr
    assert call().returncode == 0


def test_compiling_is_said_once_and_not_when_machine_code_is_on_disk(package: Path, call: Call) -> None:
    first, second = call().stderr, call().stderr
    assert first.splitlines() == ["compiling kernels, once for this copy of privcirnet: up to four minutes in all"]
    assert second == ""


def nowhere(package: Path, tmp_path: Path) -> dict[str, str]:
    (package / "__pycache__").touch()
    return dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), str(package / "__pycache__"))


def half_written(package: Path, tmp_path: Path) -> dict[str, str]:
    for path in machine_code(package):
        path.write_bytes(path.read_bytes()[:40])
    return {}


def in_the_way(package: Path, tmp_path: Path) -> dict[str, str]:
    """Nobody can write the index: its place is a folder."""
    for path in package.rglob("*.nbi"):
        path.unlink()
        path.mkdir()
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [nowhere, half_written, in_the_way])
def test_machine_code_that_cannot_be_kept(package: Path, call: Call, prepare, tmp_path: Path) -> None:
    """The kernel runs from memory, and one line says so, with a remedy."""
    call()
    shutil.rmtree(package / "__pycache__") if prepare is nowhere else None
    found = call(**prepare(package, tmp_path))
    assert (found.returncode, found.stdout) == (0, "2\n")
    assert found.stderr.count("UserWarning: machine code of kernels is not kept") == 1
    assert "NUMBA_CACHE_DIR to a folder that can be written" in found.stderr


def test_what_kernels_are_compiled_from_is_hashed() -> None:
    """A kernel has functions and numbers of its own file in it, or of files whose change makes it compile again."""
    names = (".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in jit.source_files())
    hashed = {name.removesuffix(".__init__") for name in names}
    kernels = 0
    for path in PACKAGE.rglob("*.py"):
        if "privcirnet.he.system.jit import" not in path.read_text():
            continue
        module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        imported = {
            name.asname or name.name: line.module
            for line in ast.parse(path.read_text()).body
            if isinstance(line, ast.ImportFrom)
            for name in line.names
        }
        for kernel in vars(module).values():
            if isinstance(kernel, Dispatcher):
                kernels += 1
                used = {imported[name] for name in kernel.py_func.__code__.co_names if name in imported}
                assert used <= hashed, f"{module.__name__}.{kernel.py_func.__name__}"
    assert kernels > 50

"""What several tests share. One thread a process: the networks are small, and waiting threads slow each other down."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import fcntl
import gc
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import privcirnet.service  # noqa: F401  before a test loads gRPC: TLS 1.3 alone

ROOT = Path(__file__).parents[1]
WHOLE = os.environ.get("TESTS") == "whole"
"""Whether everything is tried that a test can try, as in ``make test-all``."""

settings.register_profile("whole", max_examples=60, deadline=None)
settings.register_profile("some", max_examples=10, deadline=None)
settings.load_profile("whole" if WHOLE else "some")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through thousands of tests, and all that they import, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def subprocess_python():
    """Run a program in a fresh interpreter at the project's root; returns what it prints."""

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def state_home(run_folder: Path) -> None:
    """No test writes into the user's state folder, nor do the processes that it starts."""
    os.environ["XDG_STATE_HOME"] = str(run_folder / "state_home")


@pytest.fixture(scope="session")
def image_cache(run_folder: Path) -> Path:
    """For decoded image archives."""
    return run_folder / "images"


@pytest.fixture(scope="session")
def once(run_folder: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function from a name and what fills a folder to that folder: filled once a run, by whichever process is first.

    It is for reading. A test that changes something copies it.
    """

    def filled(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = run_folder / name, run_folder / f"{name}.done"
        with (run_folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture(scope="session")
def digits_chain(once) -> Path:
    """The folders of a short chain on the digits, from train to infer, and its report."""
    from tests.scripts import chain

    return once("digits", chain)


@pytest.fixture(scope="session")
def small_program(once) -> Path:
    """The folder of a program that uses every kind of operation, with encoded plaintexts."""
    from privcirnet.artifact.program import write_program
    from tests.he.networks import network

    facts = {"classes": ["a", "b"], "counts": {2: 1, 10: 0.1}}
    return once("small", lambda folder: write_program(folder / "program", network(), facts, full=True)) / "program"


@pytest.fixture
def file_limit() -> Callable[[int], None]:
    """A function that lets no file grow beyond some bytes while the test runs: a full disk, from the system itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    return lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test, and the fixtures that it is the first to need, the same random numbers whatever ran before it."""
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Lift a test's file limit before its result is written: into a file, maybe."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        return (yield)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

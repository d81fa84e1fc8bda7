"""What several tests share. One thread a process: the networks are small, and waiting threads slow each other down."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
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
def image_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for decoded image archives, which all processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "images"


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

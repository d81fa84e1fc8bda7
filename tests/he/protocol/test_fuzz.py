"""Mutated messages from either side, on both encrypted engines: a clean error or a wrong result, nothing else.

10,000 in ``make test-all``, else an eighth of them.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program import limits
from privcirnet.he.protocol.parties.client import Client
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import BYTES, HANG, MUTATIONS
from tests.he.protocol.fuzz_exact import MUTATIONS as EXACT
from tests.he.protocol.fuzz_prepared import MUTATIONS as PREPARED

ROOT = Path(__file__).parents[3]
MOST_SECONDS = 1200


def test_there_are_ten_thousand() -> None:
    every = [*MUTATIONS.values(), *PREPARED.values()]
    assert sum(count for kinds in every for count in kinds.values()) >= 10_000


def kinds_of(module: str, engine: str, due: Mapping[str, int], folder: Path) -> dict[str, dict[str, int]]:
    """What a child process found by kind of message; it ended well, tried all that is due, and stayed small."""
    tried = folder / "tried"
    tried.write_bytes(bytes(64))
    command = [sys.executable, "-m", f"tests.he.protocol.{module}", str(tried), engine]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    last = tried.read_bytes().decode().strip()
    assert done.returncode == 0, f"exit {done.returncode} (over {HANG} s: a hang) at mutation {last}\n{done.stderr}"
    found = json.loads(done.stdout)
    assert {name: kind["tried"] for name, kind in found["kinds"].items()} == due
    assert found["grown MiB"] < BYTES >> 20
    return found["kinds"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", MUTATIONS)
def test_mutated_messages(engine: str, tmp_path: Path) -> None:
    """Every message that the oracle allows is processed, every other refused, and the parties go on working."""
    for name, kind in kinds_of("fuzz", engine, mutations.due(MUTATIONS[engine]), tmp_path).items():
        assert kind["processed"] < kind["tried"] / 2, name
        assert kind["processed"] > kind["tried"] / 20, name


def test_a_crash_is_seen(tmp_path: Path) -> None:
    """The child's end by a signal is a failure that names the mutation."""
    tried = tmp_path / "tried"
    tried.write_bytes(bytes(64))
    crash = "import faulthandler; fuzz.Fuzz.attempt = lambda *_: faulthandler._sigsegv()"
    program = f"import mmap; from tests.he.protocol import fuzz; {crash}; f = open({str(tried)!r}, 'r+b')"
    program += "; fuzz.main(mmap.mmap(f.fileno(), 64), 'kernel', ['keys', '7'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode < 0
    assert tried.read_bytes().decode().strip() == "keys 7"


@pytest.mark.parametrize(
    "content", [b"[" + b"[]," * (1 << 21) + b"[]]", b" " * (limits.MAX_BYTES + 1)], ids=["lists", "spaces"]
)
def test_greetings_that_would_fill_the_memory_are_not_parsed(content: bytes) -> None:
    with pytest.raises(RuleError, match=r"a greeting must have at most \d+ bytes: got \d+ bytes;"):
        Client(content)


@pytest.mark.slow
@pytest.mark.parametrize("engine", PREPARED)
def test_mutated_messages_of_prepared_inference(engine: str, tmp_path: Path) -> None:
    """The same for offline work and for images with prepared work."""
    for name, kind in kinds_of("fuzz_prepared", engine, mutations.due(PREPARED[engine]), tmp_path).items():
        assert kind["tried"] / 30 < kind["processed"] < kind["tried"] / 1.5, name


@pytest.mark.slow
@pytest.mark.parametrize("source", EXACT)
def test_mutated_messages_of_exact_programs(source: str, tmp_path: Path) -> None:
    """The same for oblivious transfers, how they begin and are made, and for each step, ahead and with the image."""
    found = kinds_of("fuzz_exact", source, mutations.due(EXACT[source]), tmp_path)
    assert all(kind["processed"] < kind["tried"] for kind in found.values())
    processed, tried = (sum(kind[which] for kind in found.values()) for which in ("processed", "tried"))
    assert tried / 8 < processed < tried / 1.5

"""Where the stages keep what they exchange, as the benchmark's harness has it: one folder for each instance size."""

import argparse
import json
import os
import pickle
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from papers.falcon2020.protocol.description import from_dict, to_dict
from papers.falcon2020.protocol.inference import LeveledInferenceClient
from papers.falcon2020.protocol.leveled_program import Description, LeveledProgram

SIZES = {"single": 1, "small": 15, "batch": 100, "medium": 1000, "large": 10000}
"""Images of an instance: the harness' four sizes, and a batch of 100."""
_MAX_LEVEL = 255


@dataclass(frozen=True)
class Files:
    """The files of an instance.

    Attributes:
        root: folder of all instances.
        size: of :data:`SIZES`.
    """

    root: Path
    size: str

    @property
    def pixels(self) -> Path:
        """784 numbers in [0, 1] a line."""
        return self.root / "datasets" / self.size / "intermediate" / "test_pixels.txt"

    @property
    def labels(self) -> Path:
        """One number a line."""
        return self.pixels.with_name("test_labels.txt")

    @property
    def io(self) -> Path:
        """What client and server exchange, and what the client keeps."""
        return self.root / "io" / self.size

    @property
    def program(self) -> Path:
        """The server's program, with its weights."""
        return self.root / "server" / self.size

    @property
    def description(self) -> Path:
        """The program's public description, from the server."""
        return self.io / "public_parameters" / "description.json"

    @property
    def keys(self) -> Path:
        """Folder of the evaluation keys."""
        return self.io / "public_keys"

    @property
    def secret(self) -> Path:
        """The client's secret key."""
        return self.io / "secret_key" / "secret"

    @property
    def integers(self) -> Path:
        """The images as integers."""
        return self.io / "intermediate" / "images.npy"

    @property
    def upload(self) -> Path:
        """Folder of requests, one after the other."""
        return self.io / "ciphertexts_upload"

    @property
    def download(self) -> Path:
        """Folder of answers."""
        return self.io / "ciphertexts_download"

    @property
    def results(self) -> Path:
        """The decrypted results, a line of integers for each image."""
        return self.io / "intermediate" / "results.txt"

    @property
    def predictions(self) -> Path:
        """The predicted class of each image, one a line."""
        return self.io / "encrypted_model_predictions.txt"

    def describe(self, known: Description) -> None:
        """Write a program's description.

        Args:
            known: from the server.
        """
        self.description.parent.mkdir(parents=True, exist_ok=True)
        self.description.write_text(json.dumps(to_dict(known)))

    def write_program(self, program: LeveledProgram) -> None:
        """Write the server's program.

        Args:
            program: with weights.
        """
        self.program.parent.mkdir(parents=True, exist_ok=True)
        self.program.write_bytes(pickle.dumps(program))

    def read_program(self) -> LeveledProgram:
        """Read the server's own program, which it trusts."""
        return pickle.loads(self.program.read_bytes())

    def known(self) -> Description:
        """Read the program's description, which is checked."""
        return from_dict(json.loads(self.description.read_text()))

    def client(self) -> tuple[LeveledInferenceClient, Description]:
        """The client with the secret key that its first stage wrote, and the program's description."""
        known = self.known()
        client = LeveledInferenceClient(known.plan, known.parameters)
        client.restore(self.secret.read_bytes())
        return client, known


def given() -> Files:
    """What a stage is started with: the instance's size, the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--root", type=Path, default=Path("outputs/fhe_benchmark"))
    found = parser.parse_args()
    return Files(found.root, found.size)


@contextmanager
def timed(what: str):
    """Say on the standard error output how long a part of a stage took, start of the process and files left out."""
    started = perf_counter(), process_time()
    yield
    seconds, processor = perf_counter() - started[0], process_time() - started[1]
    sys.stderr.write(json.dumps({"part": what, "seconds": seconds, "processor": processor}) + "\n")


def write_rows(folder: Path, rows: list[list[bytes]]) -> None:
    """Write messages in rows, each a file.

    Args:
        folder: created.
        rows: of messages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for row, messages in enumerate(rows):
        for number, message in enumerate(messages):
            (folder / f"{row:02}-{number:04}").write_bytes(message)


def read_rows(folder: Path) -> list[list[bytes]]:
    """Return the messages that :func:`write_rows` wrote.

    Args:
        folder: of them.
    """
    rows: dict[str, list[bytes]] = {}
    for path in sorted(folder.iterdir()):
        rows.setdefault(path.name.split("-")[0], []).append(path.read_bytes())
    return [rows[name] for name in sorted(rows)]


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read.

    Args:
        path: of it.
        content: of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def to_integers(pixels: np.ndarray, known: Description) -> np.ndarray:
    """Return pixels as the program takes them.

    Args:
        pixels: in [0, 1], (N, 784).
        known: the program's description.

    Returns:
        (N, 1, 28, 28).
    """
    stored = np.rint(pixels * _MAX_LEVEL).astype(np.int64)
    return known.shifted(stored).reshape(-1, *known.plan.image)

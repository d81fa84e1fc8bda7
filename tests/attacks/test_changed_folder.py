"""Somebody with access to a program's folder changes what the server computes, or finds out about other files.

The server proves its bounds from the weights, but computes with their spectra: other spectra compute another network
under bounds that are not its own. Checksums are no defence, as whoever changes a file writes its new checksum too.
A signature is one, where the server pins its key.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from privcirnet.artifact.folder import MANIFEST, SIGNATURE
from privcirnet.artifact.program import PLAINTEXTS, WEIGHTS, read_program, write_program
from privcirnet.errors import RuleError
from privcirnet.he.program import signature
from tests.he.networks import network


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "model.pem"
    signature.make_keys(path)
    return path


@pytest.fixture
def folder(tmp_path, key) -> Path:
    write_program(tmp_path / "program", network(), {}, key=signature.read_private(key))
    return tmp_path / "program"


def public(key: Path) -> signature.PublicKey:
    return signature.read_public(key.with_name("model.pem.pub"))


def with_checksum(folder: Path, name: str, digest: str) -> None:
    """Write a checksum, and the manifest's own anew."""
    data = json.loads((folder / MANIFEST).read_text())
    checksums = {**data.pop("checksums"), name: digest}
    checksums[MANIFEST] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps({**data, "checksums": checksums}))


def change(folder: Path, name: str, tensor: str) -> None:
    """Add one to a value of a tensor, and mend its file's checksum."""
    tensors = safetensors.numpy.load_file(folder / name)
    changed = tensors[tensor].copy()
    changed.reshape(-1)[3] += 1
    safetensors.numpy.save_file({**tensors, tensor: np.ascontiguousarray(changed)}, folder / name)
    with_checksum(folder, name, hashlib.sha256((folder / name).read_bytes()).hexdigest())


def test_spectra_that_are_not_the_weights_are_refused(folder):
    change(folder, PLAINTEXTS, "second")
    with pytest.raises(RuleError, match="must be those of its weights: got others in second"):
        read_program(folder)


def test_other_weights_are_refused_by_the_key_alone(folder, key):
    changed = network(seed=1)
    old = (folder / SIGNATURE).read_bytes()
    write_program(folder, changed, {})
    read_program(folder)
    for left_behind in (None, old):
        if left_behind is not None:
            (folder / SIGNATURE).write_bytes(left_behind)
        with pytest.raises(RuleError, match="must be signed with the key that model_key names: got"):
            read_program(folder, public(key))


def test_every_part_of_a_signed_program_is_covered(folder, key):
    read_program(folder, public(key))
    for name, tensor in ((WEIGHTS, "head.bias"), (WEIGHTS, "first.rows")):
        change(folder, name, tensor)
        with pytest.raises(RuleError, match="must be signed with the key"):
            read_program(folder, public(key))


def test_another_s_signature_is_refused(folder, tmp_path, key):
    signature.make_keys(tmp_path / "other")
    write_program(folder, network(), {}, key=signature.read_private(tmp_path / "other"))
    with pytest.raises(RuleError, match="got a signature that is not"):
        read_program(folder, public(key))
    read_program(folder, signature.read_public(tmp_path / "other.pub"))


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "plaintexts_full/../../secret", "secret", "..", ""])
def test_checksums_name_files_of_the_folder_only(folder, name):
    """Else a manifest asks about any file on the machine: whether it is there and, by guesses, what it holds."""
    secret = b"a file beside the folder"
    (folder.parent / "secret").write_bytes(secret)
    with_checksum(folder, name, hashlib.sha256(secret).hexdigest())
    with pytest.raises(RuleError, match="files must have known names"):
        read_program(folder)

"""What holds for the folders of all kinds of programs: checksums, versions, signatures, and what they replace."""

import json
import shutil
from functools import partial

import pytest

from privcirnet.artifact.folder import MANIFEST
from privcirnet.artifact.program import WEIGHTS, read_ckks, read_program, write_ckks, write_program
from privcirnet.errors import RuleError
from privcirnet.he.program.signature import make_keys, read_private, read_public
from tests.artifact.samples import ckks_program, contents, layer_program

KINDS = {
    "interactive": (partial(layer_program, 4, 8), write_program, read_program),
    "ckks": (ckks_program, write_ckks, read_ckks),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def written(kind, tmp_path_factory):
    """Signed; the key is beside it."""
    program, write, _ = KINDS[kind]
    path = tmp_path_factory.mktemp("written") / "program"
    make_keys(path.parent / "key")
    write(path, program(), {}, key=read_private(path.parent / "key"))
    return path


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "program")


def test_changed_files_are_refused(kind, copy):
    read, weights = KINDS[kind][2], (copy / WEIGHTS).read_bytes()
    (copy / WEIGHTS).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(RuleError, match="must match their checksums"):
        read(copy)
    (copy / WEIGHTS).unlink()
    with pytest.raises(RuleError, match="must match their checksums"):
        read(copy)
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps({**manifest, "version": 9}))
    with pytest.raises(RuleError, match=r"must be a privcirnet-\S*program of version 4: got .* 9"):
        read(copy)


def test_a_signature_is_checked_against_the_key_that_is_wanted(kind, written, tmp_path):
    read = KINDS[kind][2]
    read(written, read_public(written.parent / "key.pub"))
    make_keys(tmp_path / "other")
    with pytest.raises(RuleError, match="must be signed with the key"):
        read(written, read_public(tmp_path / "other.pub"))


def test_other_kinds_name_the_mode_to_give(kind, written):
    other = next(each for each in KINDS if each != kind)
    with pytest.raises(RuleError, match=f"reads programs of mode={other}: got .* of mode={kind}"):
        KINDS[other][2](written)


def test_what_cannot_be_written_leaves_the_old_program(kind, copy, file_limit):
    program, write, _ = KINDS[kind]
    before, made = contents(copy.parent), program()
    file_limit(100)
    with pytest.raises(RuleError, match=r"a disk must have room .*: got .*: File too large"):
        write(copy, made, {})
    assert contents(copy.parent) == before
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_each_kind_replaces_the_others_but_nothing_else(kind, copy, tmp_path):
    for program, write, read in KINDS.values():
        write(copy, program(), {})
        read(copy)
    program, write, _ = KINDS[kind]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").touch()
    with pytest.raises(RuleError, match="must be new or hold a program"):
        write(tmp_path / "mine", program(), {})

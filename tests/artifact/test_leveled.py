"""Folders of leveled programs: round trips, signatures, and folders that are refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from privcirnet.artifact import (
    LEVELED,
    MANIFEST,
    SIGNATURE,
    WEIGHTS,
    folder,
    format_of,
    read_leveled,
    read_program,
    write_leveled,
    write_program,
)
from privcirnet.artifact.leveled import _tensors
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.leveled import description
from privcirnet.he.leveled.network import LeveledNetwork
from privcirnet.he.leveled.parameters import plan_for
from privcirnet.he.leveled.periodic import periodic_plan
from privcirnet.he.leveled.program import LeveledProgram
from privcirnet.he.program.signature import make_keys, read_private, read_public
from tests.artifact.samples import contents, layer_program
from tests.he.leveled.networks import network


@pytest.fixture(scope="module")
def program() -> LeveledProgram:
    """With a bias of more than 64 bits, and one that is negative."""
    made = network(2, 6, 6, 3, b=4, largest=1)
    last = dataclasses.replace(made.layers[2], bias=np.array([1 << 70, -(1 << 69), 0], dtype=object))
    made = LeveledNetwork((*made.layers[:2], last), made.low, made.high)
    plan, parameters = plan_for(made, periodic_plan)
    return LeveledProgram(made, "periodic", parameters, -7, 2, plan)


@pytest.fixture(scope="module")
def written(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("leveled") / "program"
    key = path.parent / "key"
    write_leveled(path, program, {"classes": ["a", "b", "c"]}, read_private(_made(key)))
    return path


def _made(path):
    make_keys(path)
    return path


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "program")


def test_a_program_is_what_was_written(written, program):
    found = read_leveled(written, read_public(written.parent / "key.pub"))
    assert description.to_dict(found.description) == description.to_dict(program.description)
    assert (found.planner, found.log_step, found.shift) == ("periodic", -7, 2)
    for mine, other in zip(found.network.layers, program.network.layers, strict=True):
        assert (mine.name, mine.shape, mine.block_size) == (other.name, other.shape, other.block_size)
        assert np.array_equal(mine.rows, other.rows)
        assert list(mine.bias) == list(other.bias)
    assert format_of(written) == LEVELED


def test_no_weight_is_in_the_manifest(written, program):
    """Two programs that differ in weights alone, and not in the bits of their results, have the same description."""
    first = program.network.layers[0]
    turned = dataclasses.replace(first, rows=-first.rows)
    other = LeveledNetwork((turned, *program.network.layers[1:]), program.network.low, program.network.high)
    assert other.bits == program.network.bits
    again = LeveledProgram(other, "periodic", program.parameters, -7, 2)
    assert description.to_dict(again.description) == json.loads((written / MANIFEST).read_text())["description"]


def test_changed_folders_are_refused(copy):
    weights, manifest = (copy / WEIGHTS).read_bytes(), json.loads((copy / MANIFEST).read_text())
    (copy / WEIGHTS).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(RuleError, match="must match their checksums"):
        read_leveled(copy)
    (copy / WEIGHTS).unlink()
    with pytest.raises(RuleError, match="must match their checksums"):
        read_leveled(copy)
    (copy / MANIFEST).write_text(json.dumps({**manifest, "version": 9}))
    with pytest.raises(RuleError, match="must be a privcirnet-leveled-program of version 1"):
        read_leveled(copy)
    with pytest.raises(RuleError, match=r"reads programs of mode=interactive: got .* of mode=leveled; give mode=leve"):
        read_program(copy)


def _sealed(copy, **changes):
    """The folder with another manifest, whose checksums are right."""
    facts = json.loads((copy / MANIFEST).read_text())
    (copy / SIGNATURE).unlink()
    facts.pop("checksums")
    folder.seal(copy, {**facts, **changes}, [WEIGHTS], {})


def test_weights_that_are_not_those_of_the_description_are_refused(copy, program):
    first = program.network.layers[0]
    larger = dataclasses.replace(first, rows=first.rows * 100_000)
    other = LeveledNetwork((larger, *program.network.layers[1:]), program.network.low, program.network.high)
    write_tensors(copy / WEIGHTS, _tensors(other))
    _sealed(copy)
    with pytest.raises(RuleError, match=r"must follow from its weights|must be under the product"):
        read_leveled(copy)


def test_rows_that_do_not_fill_padded_blocks_are_refused(copy, program):
    """Of a layer of 18 to 6 with blocks of 4: two rows of 20, as many as the layer's own size would need."""
    tensors = _tensors(program.network)
    assert tensors["fc1.rows"].shape == (2, 20, 1, 1)
    for rows in (tensors["fc1.rows"][:1], tensors["fc1.rows"][:, :18]):
        (copy / SIGNATURE).touch()
        write_tensors(copy / WEIGHTS, {**tensors, "fc1.rows": np.ascontiguousarray(rows)})
        _sealed(copy)
        with pytest.raises(RuleError, match=r"fc1.rows.*got"):
            read_leveled(copy)


def test_a_plan_or_a_layer_that_is_unknown_is_refused(copy):
    layers = json.loads((copy / MANIFEST).read_text())["layers"]
    _sealed(copy, planner="other")
    with pytest.raises(RuleError, match="the plan must be a known one: got 'other'"):
        read_leveled(copy)
    (copy / SIGNATURE).touch()
    _sealed(copy, planner="periodic", layers=[{**layers[0], "block_size": 3}, *layers[1:]])
    with pytest.raises(RuleError, match="block size"):
        read_leveled(copy)
    (copy / SIGNATURE).touch()
    _sealed(copy, layers=[layers[0]["shape"]])
    with pytest.raises(RuleError, match="a leveled program must be complete"):
        read_leveled(copy)


def test_a_foreign_signature_is_refused(copy, tmp_path):
    make_keys(tmp_path / "other")
    with pytest.raises(RuleError, match="must be signed with the key"):
        read_leveled(copy, read_public(tmp_path / "other.pub"))


def test_what_cannot_be_written_leaves_the_old_program(copy, program, file_limit):
    before = contents(copy)
    file_limit(100)
    with pytest.raises(RuleError, match="a disk must have room"):
        write_leveled(copy, program, {})
    assert contents(copy) == before


def test_either_kind_replaces_the_other_but_nothing_else(copy, program, tmp_path):
    write_program(copy, layer_program(4, 8), {})
    write_leveled(copy, program, {})
    assert read_leveled(copy).planner == "periodic"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").touch()
    with pytest.raises(RuleError, match="must be new or hold a program"):
        write_leveled(tmp_path / "mine", program, {})

"""Folders of leveled programs: round trips, signatures, and folders that are refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from privcirnet.artifact import (
    LEVELED,
    MANIFEST,
    SIGNATURE,
    WEIGHTS,
    folder,
    format_of,
    read_leveled,
    write_leveled,
)
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.program.signature import make_keys, read_private, read_public
from privcirnet.he.protocol.leveled import description
from privcirnet.he.protocol.leveled.leveled_program import LeveledProgram
from tests.artifact.samples import leveled_program
from tests.he.exact_networks import network_of


@pytest.fixture(scope="module")
def program():
    return leveled_program()


@pytest.fixture(scope="module")
def written(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("leveled") / "program"
    key = path.parent / "key"
    make_keys(key)
    write_leveled(path, program, {"classes": ["a", "b", "c"]}, read_private(key))
    return path


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "program")


def test_a_program_is_what_was_written(written, program):
    found = read_leveled(written, read_public(written.parent / "key.pub"))
    assert description.to_dict(found.description) == description.to_dict(program.description)
    assert (found.planner, found.log_step, found.shift) == ("periodic", -7, 2)
    for mine, other in zip(found.chain.layers, program.chain.layers, strict=True):
        assert (mine.name, mine.shape, mine.block_size) == (other.name, other.shape, other.block_size)
        assert np.array_equal(mine.rows, other.rows)
        assert list(mine.bias) == list(other.bias)
    assert format_of(written) == LEVELED


def test_no_weight_is_in_the_manifest(written, program):
    """Two programs that differ in weights alone, and not in the bits of their results, have the same description."""
    first = program.chain.layers[0]
    turned = dataclasses.replace(first, rows=-first.rows)
    other = dataclasses.replace(program.chain, layers=(turned, *program.chain.layers[1:]))
    again = LeveledProgram(network_of(other, -7), "periodic", program.parameters, 2)
    assert again.chain.bits == program.chain.bits
    assert description.to_dict(again.description) == json.loads((written / MANIFEST).read_text())["description"]


def _sealed(copy, **changes):
    """The folder with another manifest, whose checksums are right."""
    facts = json.loads((copy / MANIFEST).read_text())
    (copy / SIGNATURE).unlink()
    facts.pop("checksums")
    folder.seal(copy, {**facts, **changes}, [WEIGHTS], {})


def test_weights_that_are_not_those_of_the_description_are_refused(copy):
    tensors = safetensors.numpy.load_file(copy / WEIGHTS)
    write_tensors(copy / WEIGHTS, {**tensors, "conv.rows": tensors["conv.rows"].astype(np.int32) * 100_000})
    _sealed(copy)
    with pytest.raises(RuleError, match=r"must follow from its weights|must be under the product"):
        read_leveled(copy)


def test_rows_that_do_not_fill_padded_blocks_are_refused(copy):
    """Of a layer of 18 to 6 with blocks of 4: two rows of 20, as many as the layer's own size would need."""
    tensors = safetensors.numpy.load_file(copy / WEIGHTS)
    assert tensors["fc1.rows"].shape == (2, 20, 1, 1)
    for rows in (tensors["fc1.rows"][:1], tensors["fc1.rows"][:, :18]):
        (copy / SIGNATURE).touch()
        write_tensors(copy / WEIGHTS, {**tensors, "fc1.rows": np.ascontiguousarray(rows)})
        _sealed(copy)
        with pytest.raises(RuleError, match=r"fc1.rows.*got"):
            read_leveled(copy)


def test_a_plan_or_a_layer_that_is_unknown_is_refused(copy):
    nodes = json.loads((copy / MANIFEST).read_text())["nodes"]
    _sealed(copy, planner="other")
    with pytest.raises(RuleError, match="the plan must be a known one: got 'other'"):
        read_leveled(copy)
    place = next(i for i, node in enumerate(nodes) if node["name"] == "fc1")
    for change, match in (
        ({"layer": {**nodes[place]["layer"], "block_size": 30}}, "block size"),
        ({"layer": {**nodes[place]["layer"], "encoding": "other"}}, "encoding must be a known one"),
        ({"operation": "add"}, "node fc1: inputs"),
        ({"shape": [7, 1, 1]}, "node fc1: shape"),
        ({"inputs": ["nowhere"]}, "node fc1: inputs"),
        ({"layer": {}}, "must be complete"),
    ):
        (copy / SIGNATURE).touch()
        _sealed(copy, planner="periodic", nodes=[*nodes[:place], {**nodes[place], **change}, *nodes[place + 1 :]])
        with pytest.raises(RuleError, match=match):
            read_leveled(copy)

"""Folders of CKKS programs: round trips, signatures, and folders that are refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from privcirnet.artifact import (
    CKKS,
    MANIFEST,
    SIGNATURE,
    WEIGHTS,
    folder,
    format_of,
)
from privcirnet.artifact.ckks import read_ckks, write_ckks
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.planning.ckks.ckks_program import CkksProgram
from privcirnet.he.program.operation import Weights
from privcirnet.he.program.signature import make_keys, read_private, read_public
from tests.artifact.samples import ckks_program
from tests.passes.lower.test_ckks import images_of


@pytest.fixture(scope="module")
def program():
    return ckks_program()


@pytest.fixture(scope="module")
def written(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("ckks") / "program"
    make_keys(path.parent / "key")
    write_ckks(path, program, {"classes": ["a", "b", "c", "d"]}, read_private(path.parent / "key"))
    return path


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "program")


def test_a_program_is_what_was_written(written, program):
    found = read_ckks(written, read_public(written.parent / "key.pub"))
    assert found.description == program.description
    assert found.refresh == program.refresh
    images = images_of(8).double().numpy()
    np.testing.assert_array_equal(found.sums(images), program.sums(images))
    assert (found.network.nodes, found.scales) == (program.network.nodes, program.scales)
    assert format_of(written) == CKKS


def test_no_weight_is_in_the_manifest(written, program):
    """Two programs that differ in weights alone have the same manifest, but for the checksum of the weights."""
    weights = {name: Weights(-each.rows, 2 * each.bias) for name, each in program.network.weights.items()}
    scales = dataclasses.replace(program.scales, rms=program.scales.sums, pooled=0.5)
    again = CkksProgram(dataclasses.replace(program.network, weights=weights), scales, program.refresh, -8)
    write_ckks(written.parent / "other", again, {"classes": ["a", "b", "c", "d"]})
    first, second = (json.loads((path / MANIFEST).read_text()) for path in (written, written.parent / "other"))
    assert first.pop("checksums")[WEIGHTS] != second.pop("checksums")[WEIGHTS]
    assert first == second


def _sealed(copy, **changes):
    """The folder with another manifest, whose checksums are right."""
    facts = json.loads((copy / MANIFEST).read_text())
    (copy / SIGNATURE).unlink(missing_ok=True)
    facts.pop("checksums", None)
    folder.seal(copy, {**facts, **changes}, [WEIGHTS], {})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"levels": 60}, "log2 of the modulus|must be at most|secure"),
        ({"ring_degree": 1024}, "secure|at most|must be"),
        ({"ring_degree": "65536"}, "must have an integer in"),
        ({"ephemeral_weight": 4}, "weight must be 32 or more"),
        ({"unknown": 1}, "must be complete"),
    ],
)
def test_parameters_that_are_not_secure_are_refused(copy, changes, match):
    known = json.loads((copy / MANIFEST).read_text())["description"]
    _sealed(copy, description={**known, "parameters": {**known["parameters"], **changes}})
    with pytest.raises(RuleError, match=match):
        read_ckks(copy)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"level": 7}, "description must follow from its weights"),
        ({"classes": 3}, "description must follow from its weights"),
        ({"keys": [[0, 1]]}, "description must follow from its weights"),
        ({"bound": -1.0}, "must have a positive number"),
        ({"image": [2, 8, 8]}, "description must follow from its weights"),
        ({"parameters": None}, "must be complete"),
        ({"log_step": 1 << 40}, "must have an integer in"),
        ({"refreshed": {}}, "description must follow from its weights"),
    ],
)
def test_descriptions_that_do_not_follow_are_refused(copy, changes, match):
    known = json.loads((copy / MANIFEST).read_text())["description"]
    _sealed(copy, description={**known, **changes})
    with pytest.raises(RuleError, match=match):
        read_ckks(copy)


def _nodes(copy):
    return json.loads((copy / MANIFEST).read_text())["nodes"]


def test_networks_that_are_none_are_refused(copy):
    nodes = _nodes(copy)
    names = [node["name"] for node in nodes]
    stem, square = (
        next(i for i, node in enumerate(nodes) if node["operation"] == kind) for kind in ("linear", "square")
    )

    def other(place: int, **changes):
        return [*nodes[:place], {**nodes[place], **changes}, *nodes[place + 1 :]]

    layer, shape = nodes[stem]["layer"], nodes[stem]["layer"]["shape"]
    for broken, match in (
        ([], "tensor /sums must be real numbers"),
        (other(stem, name=names[-1]), "its name is taken|inputs"),
        (other(stem, inputs=[names[-1]]), "inputs"),
        (other(stem, layer={**layer, "shape": {**shape, "stride": 3}}), "shape"),
        (other(stem, layer={**layer, "encoding": "other"}), "encoding must be a known one"),
        (other(square, operation="unknown"), "operation must be a known one"),
        (other(0, shape=[3, 6, 6]), "takes"),
        (nodes[:-1], "must have squares, then an average pool of whole maps"),
        ("nodes", "must have a list"),
    ):
        _sealed(copy, nodes=broken)
        with pytest.raises(RuleError, match=match):
            read_ckks(copy)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("stem.rows", lambda w: np.where(w == w.max(), np.nan, w), "weights must be finite"),
        ("stem.rows", lambda w: w.astype(np.int64), "must be real numbers"),
        ("stem.rows", lambda w: w[:, :, :2], "must be real numbers"),
        ("stem.bias", lambda b: b[:1], "must be real numbers"),
        ("classifier.rows", lambda w: w[:, :3], "must be real numbers"),
        ("/sums", lambda s: s[:, :2], "must be real numbers"),
        ("/sums", lambda s: -s, "bounds positive"),
        ("/ends", lambda e: np.inf * e, "weights must be finite"),
    ],
)
def test_weights_that_are_none_are_refused(copy, name, change, match):
    tensors = safetensors.numpy.load_file(copy / WEIGHTS)
    write_tensors(copy / WEIGHTS, {**tensors, name: change(tensors[name])})
    _sealed(copy)
    with pytest.raises(RuleError, match=match):
        read_ckks(copy)
    write_tensors(copy / WEIGHTS, {key: value for key, value in tensors.items() if key != name})
    _sealed(copy)
    with pytest.raises(RuleError, match=r"must be real numbers .*: got none"):
        read_ckks(copy)


def test_a_file_of_another_kind_under_the_right_checksum(copy):
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-1])
    _sealed(copy)
    with pytest.raises(RuleError, match="must be whole safetensors files"):
        read_ckks(copy)

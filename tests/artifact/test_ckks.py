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
from privcirnet.he.planning.ckks.program import CkksProgram
from privcirnet.he.program.signature import make_keys, read_private, read_public
from tests.artifact.samples import ckks_program
from tests.test_lower_ckks import images_of


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
    np.testing.assert_array_equal(found.network(images), program.network(images))
    assert [node.rms for node in found.network.nodes] == [node.rms for node in program.network.nodes]
    assert found.network.pooled == program.network.pooled
    assert format_of(written) == CKKS


def test_no_weight_is_in_the_manifest(written, program):
    """Two programs that differ in weights alone have the same manifest, but for the checksum of the weights."""
    nodes = [
        dataclasses.replace(node, rms=0.1, terms=tuple(dataclasses.replace(t, factor=0.3) for t in node.terms))
        for node in program.network.nodes
    ]
    own = {"weights": -program.network.weights, "bias": -program.network.bias, "pooled": 0.5}
    other = dataclasses.replace(program.network, nodes=tuple(nodes), **own)
    again = CkksProgram(other, program.refresh, program.log_step)
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
        ({"ring_degree": "65536"}, "a number must be in"),
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
        ({"bound": -1.0}, "weights must be finite, and bounds positive"),
        ({"image": [2, 8, 8]}, "terms of one shape that earlier sums give: got 'stem_act'"),
        ({"image": [3, 6, 6]}, "width of a map must be a power of two|terms of one shape"),
        ({"image": [3, 8]}, "must be complete"),
        ({"image": None}, "must be complete"),
        ({"log_step": 1 << 40}, "a number must be in"),
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
    for broken, match in (
        ([], "1 to 256 sums of 1 to 64 terms"),
        ([{**nodes[0], "terms": []}, *nodes[1:]], "1 to 256 sums of 1 to 64 terms"),
        ([{**nodes[0], "terms": [{"source": -1}]}, *nodes[1:]], "a sum must have a convolution"),
        ([{**nodes[0], "terms": [{**nodes[0]["terms"][0], "source": 5}]}, *nodes[1:]], "that earlier sums give"),
        ([{**nodes[0], "terms": [{**nodes[0]["terms"][0], "stride": 3}]}, *nodes[1:]], "a number must be in"),
        ([{**nodes[0], "name": nodes[1]["name"]}, *nodes[1:]], "layers must have different names"),
        (nodes[:-1], "must be float64, of 1 axes|classifier"),
        ("nodes", "must be complete"),
    ):
        _sealed(copy, nodes=broken)
        with pytest.raises(RuleError, match=match):
            read_ckks(copy)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("stem.weights", lambda w: w.astype(np.float32), "must be float64, of 4 axes"),
        ("stem.weights", lambda w: np.where(w == w.max(), np.nan, w), "weights must be finite"),
        ("stem.weights", lambda w: w[:, :, :2], "a kernel of 1 x 1 or 3 x 3"),
        ("stem.bias", lambda b: b[:1], "terms of one shape"),
        ("classifier.weights", lambda w: w[:, :3], "classifier must take a mean of each channel"),
        ("/rms", lambda r: r[:2], "must be float64, of 1 axes"),
        ("/factors", lambda f: np.inf * f, "weights must be finite"),
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
    with pytest.raises(RuleError, match="must be complete"):
        read_ckks(copy)


def test_a_file_of_another_kind_under_the_right_checksum(copy):
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-1])
    _sealed(copy)
    with pytest.raises(RuleError, match="must be whole safetensors files"):
        read_ckks(copy)

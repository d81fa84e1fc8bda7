"""Folders of CKKS programs: round trips, signatures, and folders that are refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from privcirnet.artifact import folder
from privcirnet.artifact.folder import CKKS, MANIFEST, SIGNATURE, format_of
from privcirnet.artifact.program import WEIGHTS, read_ckks, write_ckks
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.ckks.program import CkksProgram
from privcirnet.he.program.operation import Weights
from privcirnet.he.program.signature import make_keys, read_private, read_public
from tests.artifact.samples import ckks_program
from tests.passes.lower.test_ckks import images_of


def _written(program, path):
    """A signed folder, the key beside it."""
    make_keys(path.parent / "key")
    write_ckks(path, program, {"classes": ["a", "b", "c"]}, read_private(path.parent / "key"))
    return path


@pytest.fixture(scope="module")
def ckks(tmp_path_factory):
    return _written(ckks_program(), tmp_path_factory.mktemp("ckks") / "program")


@pytest.fixture
def of_ckks(ckks, tmp_path):
    return shutil.copytree(ckks, tmp_path / "program")


def _manifest(path):
    return json.loads((path / MANIFEST).read_text())


def _sealed(copy, **changes):
    """The folder with another manifest, whose checksums are right."""
    facts = _manifest(copy)
    (copy / SIGNATURE).unlink(missing_ok=True)
    facts.pop("checksums", None)
    folder.finish_folder(copy, {**facts, **changes}, [WEIGHTS], {})


def test_a_ckks_program_is_what_was_written(ckks):
    program, found = ckks_program(), read_ckks(ckks, read_public(ckks.parent / "key.pub"))
    assert found.description == program.description
    assert found.bootstrapping == program.bootstrapping
    images = images_of(8).double().numpy()
    np.testing.assert_array_equal(found.sums(images), program.sums(images))
    assert (found.network.nodes, found.scales) == (program.network.nodes, program.scales)
    assert format_of(ckks) == CKKS


def test_no_weight_is_in_the_manifest_of_ckks(ckks, tmp_path):
    """Two programs that differ in weights alone have the same manifest, but for the checksum of the weights."""
    program = ckks_program()
    weights = {name: Weights(-each.rows, 2 * each.bias) for name, each in program.network.weights.items()}
    scales = dataclasses.replace(program.scales, rms=program.scales.sums, pooled=0.5)
    again = CkksProgram(dataclasses.replace(program.network, weights=weights), scales, program.bootstrapping, -8)
    write_ckks(tmp_path / "other", again, {"classes": ["a", "b", "c"]})
    first, second = _manifest(ckks), _manifest(tmp_path / "other")
    assert first.pop("checksums")[WEIGHTS] != second.pop("checksums")[WEIGHTS]
    assert first == second


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
def test_parameters_that_are_not_secure_are_refused(of_ckks, changes, match):
    known = _manifest(of_ckks)["description"]
    _sealed(of_ckks, description={**known, "parameters": {**known["parameters"], **changes}})
    with pytest.raises(RuleError, match=match):
        read_ckks(of_ckks)


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
        ({"bootstrapped": {}}, "description must follow from its weights"),
    ],
)
def test_descriptions_that_do_not_follow_are_refused(of_ckks, changes, match):
    known = _manifest(of_ckks)["description"]
    _sealed(of_ckks, description={**known, **changes})
    with pytest.raises(RuleError, match=match):
        read_ckks(of_ckks)


def test_networks_that_are_none_are_refused(of_ckks):
    nodes = _manifest(of_ckks)["nodes"]
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
        _sealed(of_ckks, nodes=broken)
        with pytest.raises(RuleError, match=match):
            read_ckks(of_ckks)


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
def test_weights_that_are_none_are_refused(of_ckks, name, change, match):
    tensors = safetensors.numpy.load_file(of_ckks / WEIGHTS)
    write_tensors(of_ckks / WEIGHTS, {**tensors, name: change(tensors[name])})
    _sealed(of_ckks)
    with pytest.raises(RuleError, match=match):
        read_ckks(of_ckks)
    write_tensors(of_ckks / WEIGHTS, {key: value for key, value in tensors.items() if key != name})
    _sealed(of_ckks)
    with pytest.raises(RuleError, match=r"must be real numbers .*: got none"):
        read_ckks(of_ckks)

"""Checkpoints, plans, profiles and texts: round trips, golden formats, and files that are refused."""

import dataclasses
import json
import os

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from privcirnet.artifact.records import (
    Checkpoint,
    plan_activations,
    plan_composed,
    read_checkpoint,
    read_json,
    read_plan,
    read_profile,
    write_arrays,
    write_checkpoint,
    write_json,
    write_plan,
    write_text,
)
from privcirnet.errors import RuleError
from privcirnet.he.planning.profile import COUNTED
from tests.artifact.samples import CHECKPOINT


class TestRoundTrips:
    def test_checkpoint(self, tmp_path):
        write_checkpoint(tmp_path / "new" / "c.safetensors", CHECKPOINT)
        found = read_checkpoint(tmp_path / "new" / "c.safetensors")
        assert dataclasses.replace(found, tensors={}) == dataclasses.replace(CHECKPOINT, tensors={})
        assert found.tensors.keys() == CHECKPOINT.tensors.keys()
        for name, tensor in CHECKPOINT.tensors.items():
            assert found.tensors[name].shape == tensor.shape, name
            assert found.tensors[name].dtype == tensor.dtype
            assert np.array_equal(found.tensors[name], tensor), name

    def test_dense_checkpoint(self, tmp_path):
        write_checkpoint(tmp_path / "c", Checkpoint({}, "resnet18", "train", {}))
        assert read_checkpoint(tmp_path / "c") == Checkpoint({}, "resnet18", "train", {}, None)

    def test_plan(self, tmp_path):
        write_plan(tmp_path / "plan.json", {"b": 4, "a": 1}, budget_seconds=0.5)
        assert list(read_plan(tmp_path / "plan.json").items()) == [("b", 4), ("a", 1)]
        assert json.loads((tmp_path / "plan.json").read_text())["budget_seconds"] == 0.5
        assert plan_composed(tmp_path / "plan.json") == ()

    def test_activations(self, tmp_path):
        write_plan(tmp_path / "plan.json", {"b": 4}, model="net", activations={"a": "own", "c": "aespa"})
        assert plan_activations(tmp_path / "plan.json", "net") == {"c": "aespa"}
        with pytest.raises(RuleError, match=r"a plan must be for this model: got .* for model net, used with other"):
            plan_activations(tmp_path / "plan.json", "other")
        for wrong in ({}, {"activations": ["a"]}, {"activations": {"a": "relu"}}):
            write_plan(tmp_path / "plan.json", {"b": 4}, **wrong)
            with pytest.raises(
                RuleError, match="a plan must make activations one of aespa, square, identity, own: got"
            ):
                plan_activations(tmp_path / "plan.json", "net")

    def test_composed_layers(self, tmp_path):
        write_plan(tmp_path / "plan.json", {"b": 4, "a": 4}, composed=["a"])
        assert plan_composed(tmp_path / "plan.json") == ("a",)
        write_plan(tmp_path / "plan.json", {"b": 4, "a": 4}, composed={"a": "b"})
        with pytest.raises(RuleError, match="must list composed layers by name"):
            plan_composed(tmp_path / "plan.json")
        held = dataclasses.replace(CHECKPOINT, composed=("a", "b"))
        write_checkpoint(tmp_path / "c", held)
        assert read_checkpoint(tmp_path / "c").composed == held.composed

    def test_profile(self, tmp_path):
        write_json(tmp_path / "profile.json", COUNTED.to_dict())
        assert read_profile(tmp_path / "profile.json") == COUNTED

    def test_text_and_arrays(self, tmp_path):
        write_text(tmp_path / "a" / "text", "\u00fc\n")
        assert (tmp_path / "a" / "text").read_bytes() == b"\xc3\xbc\n"
        write_arrays(tmp_path / "arrays.npz", images=np.arange(6).reshape(2, 3).T)
        assert np.load(tmp_path / "arrays.npz")["images"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert oct((tmp_path / "arrays.npz").stat().st_mode & 0o777) == "0o644"


class TestCheckpointFormat:
    """Golden: what another program can rely on."""

    def test_checkpoint_metadata(self, tmp_path):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        with safe_open(tmp_path / "c", framework="numpy") as file:
            assert file.metadata() == {
                "format": "privcirnet-checkpoint",
                "version": "1",
                "model": "digits_resnet",
                "stage": "qat",
                "block_sizes": '{"conv1": 8, "stem": 1}',
                "bits": "[8, 6, 10]",
                "arguments": '{"activation": "square"}',
                "inputs": '{"shape": [1, 8, 8], "log_step": -4, "levels": 16, "classes": ["zero", "one"], "data": "digits"}',
            }


class TestDamagedCheckpoints:
    def test_missing(self, tmp_path):
        for path in (tmp_path / "nothing", tmp_path):
            with pytest.raises(RuleError, match="a checkpoint must exist: got"):
                read_checkpoint(path)

    def test_truncated(self, tmp_path):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        size = (tmp_path / "c").stat().st_size
        for length in (size - 1, size // 2, 8, 0):
            os.truncate(tmp_path / "c", length)
            with pytest.raises(RuleError, match="a checkpoint must be a whole safetensors file: got"):
                read_checkpoint(tmp_path / "c")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": None}, "must be a privcirnet-checkpoint of version 1: got .*c: None 1"),
            ({"format": "privcirnet-program"}, "must be a privcirnet-checkpoint of version 1"),
            ({"version": "2"}, "must be a privcirnet-checkpoint of version 1: got .* 2"),
            ({"version": "x"}, "must be a privcirnet-checkpoint of version 1"),
            ({"bits": None}, r"a checkpoint must say what it holds: got .*KeyError\('bits'\)"),
            ({"bits": "8 8"}, "a checkpoint must say what it holds"),
            ({"bits": "8"}, "a checkpoint must say what it holds"),
            ({"bits": "[8]"}, "a checkpoint must say what it holds"),
            ({"bits": "[8, 8, 8, 8]"}, "a checkpoint must say what it holds"),
            ({"block_sizes": "{"}, "a checkpoint must say what it holds"),
            ({"inputs": "[]"}, "a checkpoint must say what it holds"),
            ({"inputs": '{"shape": [1, 8]}'}, "a checkpoint must say what it holds"),
            ({"model": None}, "a checkpoint must say what it holds"),
        ],
    )
    def test_foreign(self, tmp_path, change, message):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        with safe_open(tmp_path / "c", framework="numpy") as file:
            about = file.metadata() | change
        safetensors.numpy.save_file({}, tmp_path / "c", {key: text for key, text in about.items() if text is not None})
        with pytest.raises(RuleError, match=message):
            read_checkpoint(tmp_path / "c")


PLAN = {"format": "privcirnet-plan", "version": 1, "block_sizes": {"a": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "a plan must exist: got .*plan.json"),
        ("[" * 200_000, "a plan must be readable JSON"),
        ("{", "a plan must be readable JSON: got"),
        ("\xff", "a plan must be readable JSON"),
        ("[1]", "a plan must be a JSON object"),
        (json.dumps(PLAN | {"format": "x"}), "must be a privcirnet-plan of version 1: got .* x 1"),
        (json.dumps(PLAN | {"version": 3}), "must be a privcirnet-plan of version 1"),
        (json.dumps(PLAN | {"block_sizes": [2]}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": 0}}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": 2.0}}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": True}}), "a plan must map module names to block sizes"),
    ],
)
def test_unsuitable_plans(tmp_path, text, message):
    if text is not None:
        (tmp_path / "plan.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RuleError, match=message):
        read_plan(tmp_path / "plan.json")


PROFILE = COUNTED.to_dict()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {key: value for key, value in PROFILE.items() if key != "ring_degree"},
            "a cost profile must be complete: got .*'ring_",
        ),
        (PROFILE | {"ring_degree": "many"}, "a cost profile must be complete: got"),
        (PROFILE | {"coefficient_bits": 5}, "a cost profile must be complete"),
        (PROFILE | {"seconds": [1]}, "a cost profile must be complete"),
        (PROFILE | {"seconds": {"rotate": 1}}, "must hold a time for every operation: got add_plain,"),
        (
            PROFILE | {"seconds": PROFILE["seconds"] | {"rotate": -1}},
            "must hold a time .*: got a time that is negative",
        ),
    ],
)
def test_unsuitable_profiles(tmp_path, data, message):
    write_json(tmp_path / "profile.json", data)
    with pytest.raises(RuleError, match=message):
        read_profile(tmp_path / "profile.json")


def test_a_directory_is_no_json(tmp_path):
    with pytest.raises(RuleError, match="a plan must be readable JSON: got"):
        read_plan(tmp_path)
    with pytest.raises(RuleError, match="a thing must exist: got"):
        read_json(tmp_path / "x", "a thing", "get one")
    (tmp_path / "file").touch()
    with pytest.raises(RuleError, match=r"a thing must exist: got .*file/x"):
        read_json(tmp_path / "file" / "x", "a thing", "get one")

import numpy as np
import pytest

from papers.pruning.masks_file import read_masks, write_masks
from privcirnet.artifact.records import write_plan, write_tensors
from privcirnet.errors import RuleError

MASKS = {"conv": np.array([[True, False], [False, True]]), "head": np.zeros((2, 3), dtype=bool)}
ABOUT = {"format": "privcirnet-masks", "version": "1"}


@pytest.fixture
def plan(tmp_path):
    write_masks(tmp_path / "masks.safetensors", MASKS)
    write_plan(tmp_path / "plan.json", {"conv": 1}, masks="masks.safetensors")
    return tmp_path / "plan.json"


def test_masks_come_back_as_they_were(plan):
    found = read_masks(plan)
    assert found.keys() == MASKS.keys()
    assert all(found[name].dtype == bool and np.array_equal(found[name], MASKS[name]) for name in MASKS)


def test_a_plan_of_block_sizes_has_none(tmp_path):
    write_plan(tmp_path / "plan.json", {"conv": 4})
    assert read_masks(tmp_path / "plan.json") == {}


def test_a_plan_names_a_file_beside_it_and_no_other(tmp_path, plan):
    write_plan(plan, {"conv": 1}, masks="/etc/masks.safetensors")
    assert read_masks(plan).keys() == MASKS.keys()
    (tmp_path / "masks.safetensors").unlink()
    with pytest.raises(
        RuleError, match=r"the masks of a plan must lie beside it: got .*masks.safetensors; make the plan"
    ):
        read_masks(plan)


def test_damaged_and_foreign_masks_are_refused(tmp_path, plan):
    path = tmp_path / "masks.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RuleError, match="masks must be a whole safetensors file"):
        read_masks(plan)
    write_tensors(path, MASKS)
    with pytest.raises(RuleError, match="the file must be a privcirnet-masks of version 1"):
        read_masks(plan)
    write_tensors(path, {"conv": np.ones((2, 2), dtype=np.float32)}, ABOUT)
    with pytest.raises(RuleError, match=r"masks must be true or false: got .*: conv; make the plan again"):
        read_masks(plan)

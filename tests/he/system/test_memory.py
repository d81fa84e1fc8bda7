"""How much memory a process may take: the least limit of the groups that it is in."""

from pathlib import Path

import pytest

from privcirnet.he.system import process
from privcirnet.he.system.process import machine_bytes

GIB = 1 << 30
JOB = "system.slice/slurmstepd.scope/job_7/step_0/user/task_0"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all groups, in place of the system's; a machine of 64 GiB."""
    monkeypatch.setattr(process, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(process, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(process.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 24}[name])
    return tmp_path / "cgroup"


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_without_groups_it_is_the_machines(groups: Path) -> None:
    assert machine_bytes() == 64 * GIB
    write(groups.parent / "membership", "what nobody knows")
    assert machine_bytes() == 64 * GIB


@pytest.mark.parametrize("level", [JOB, "system.slice/slurmstepd.scope/job_7", "system.slice", "."])
def test_a_limit_of_any_group_around_it_counts(groups: Path, level: str) -> None:
    write(groups.parent / "membership", f"0::/{JOB}")
    for inner in (JOB, *(str(one) for one in Path(JOB).parents)):
        write(groups / inner / "memory.max", "max")
    write(groups / level / "memory.max", 3 * GIB)
    assert machine_bytes() == 3 * GIB
    write(groups / JOB / "memory.max", 2 * GIB)
    write(groups / "other.slice" / "memory.max", GIB)
    assert machine_bytes() == 2 * GIB


@pytest.mark.parametrize("level", ["slurm/uid_1/job_7", "slurm", "."])
def test_the_first_version_of_groups(groups: Path, level: str) -> None:
    write(groups.parent / "membership", "5:cpu,memory:/slurm/uid_1/job_7\n1:name=systemd:/user.slice\n0::/user.slice")
    write(groups / "memory" / level / "memory.limit_in_bytes", GIB)
    write(groups / "cpu" / level / "memory.limit_in_bytes", 1)
    assert machine_bytes() == GIB


def test_a_container_that_sees_its_own_group_alone(groups: Path) -> None:
    """The path is the host's, and what is mounted begins at the container's group."""
    write(groups.parent / "membership", "0::/../../docker/3f")
    write(groups / "memory.max", 5 * GIB)
    assert machine_bytes() == 5 * GIB

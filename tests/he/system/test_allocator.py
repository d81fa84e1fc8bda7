import platform

import pytest

from privcirnet.he.system.process import keep_freed_memory

PROGRAM = """
import resource, sys
import torch
from privcirnet.he.system.process import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24).sum()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults > 100)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.parametrize(("keep", "faulted"), [(True, "False"), (False, "True")])
def test_freed_blocks_are_used_again_without_page_faults(subprocess_python, keep, faulted):
    assert subprocess_python(PROGRAM.format(keep=keep)) == faulted


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()

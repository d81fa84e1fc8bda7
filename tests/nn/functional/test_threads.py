"""Work is done once and by all, on torch's threads and on others."""

import threading

import pytest

from privcirnet.nn.functional import threads


@pytest.fixture(params=["OpenMP", "a pool"], autouse=True)
def _runtime(request, monkeypatch):
    if request.param == "a pool":
        monkeypatch.setattr(threads, "openmp", lambda: None)
    elif not threads.openmp():
        pytest.skip("torch has no GNU OpenMP of its own here")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_every_function_is_called_once(number):
    calls: list[int] = []
    threads.run([lambda i=i: calls.append(i) for i in range(number)])
    assert sorted(calls) == list(range(number))


def test_two_functions_run_at_the_same_time():
    """Each waits until the other has begun."""
    both = threading.Barrier(2, timeout=30)
    threads.run([both.wait, both.wait])


def test_an_error_is_raised_when_all_are_done():
    done: list[int] = []

    def fail():
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        threads.run([fail, lambda: done.append(1), lambda: done.append(2)])
    assert sorted(done) == [1, 2]


FORKED = """
import multiprocessing, sys, torch
from privcirnet.nn.functional import polynomial, threads

values = torch.ones(1, 8, 256, 256).contiguous(memory_format=torch.channels_last)

def work():
    if {pool}:
        threads.openmp = lambda: None
    print(float(polynomial.power_sums(values, 1).sum()), float(torch.relu(values).sum()))

torch.set_num_threads(2)
work()
sys.stdout.flush()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join(20)
child.kill()
"""


@pytest.mark.slow
def test_a_forked_process_makes_its_own_threads(request, subprocess_python):
    """It has none of its parent's; without that, compiled passes and torch's own operations waited for them."""
    pool = request.node.callspec.params["_runtime"] == "a pool"
    assert subprocess_python(FORKED.format(pool=pool)).splitlines() == [f"{3.0 * 8 * 2**16} {8.0 * 2**16}"] * 2

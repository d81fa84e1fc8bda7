"""The server's process of a harness: it says what is wrong, and goes when the harness goes."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.parties.session import run
from privcirnet.runs.parties import ServerTask, start_server
from privcirnet.service.client import ServiceClient
from tests.conftest import ROOT
from tests.he.networks import network, random_image


def test_shares_come_through_the_pipe_once_for_each_image():
    program = network()
    with (
        start_server(ServerTask(program, {}, "cleartext")) as found,
        ServiceClient(found.address, "cleartext") as remote,
    ):
        for _ in range(2):
            run(remote.client, remote, random_image(program))
            report = found.report()
            assert report.seen.keys() == {node.name for node in program.nodes}
        assert report.meters[1].counts["second"]["pmult"] > 0
        assert report.peak > 1e6


def test_a_program_that_is_refused_is_refused_here():
    program = network()
    small = dataclasses.replace(program.parameters, plain_modulus=65537)
    with pytest.raises(RuleError, match="modulus"):
        with start_server(ServerTask(dataclasses.replace(program, parameters=small), {}, "cleartext")):
            pass


def test_a_process_that_dies_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuleError, match="the server's process must not end by itself: got status 1"):
        with start_server(ServerTask(network(), {}, "cleartext")):
            pass


def test_the_process_ends_with_a_harness_that_is_killed():
    program = (
        "import time; from privcirnet.runs import parties; from tests.he.networks import network\n"
        "with parties.start_server(parties.ServerTask(network(), {}, 'cleartext')):\n"
        "    print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout.readline() == "up\n"
        os.kill(harness.pid, signal.SIGKILL)
        assert harness.stdout.read() == "", "the end of the pipe that both write to: the other process has ended too"


def test_errors_keep_their_parts_on_the_way():
    import pickle

    error = pickle.loads(pickle.dumps(RuleError("a rule", got=3, remedy="mend it")))
    assert (type(error), error.rule, error.got, error.remedy) == (RuleError, "a rule", "3", "mend it")

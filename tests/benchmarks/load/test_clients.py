"""Load on a server, by clients in processes of their own: what they see of an interactive program and of a CKKS one."""

import os

import pytest

from benchmarks.load.clients import LoadTask, Sample, load, summary
from privcirnet.artifact.program import write_ckks, write_program
from privcirnet.errors import RuleError
from privcirnet.he.protocol.one_message.session import OneMessageServer
from privcirnet.he.protocol.parties.server import Server
from tests.artifact.samples import ckks_program
from tests.page import samples
from tests.service.running import catalogue, serving


def asked(address, folder, mode: str = "interactive") -> dict:
    return load(LoadTask(address, None, "", "cleartext", 0.2, folder, mode), 1, "", lambda sample: None)


def test_a_ckks_service_is_asked_by_its_own_clients(tmp_path):
    """Every class is that of the network in clear; a client of the other mode is refused in a line."""
    write_ckks(tmp_path / "program", ckks_program(), {})
    with serving(catalogue(only=OneMessageServer(ckks_program(), "cleartext"))) as service:
        found = asked(service.address, tmp_path / "program", "ckks")
        with pytest.raises(RuleError, match="must be interactive"):
            asked(service.address, tmp_path / "program")
    assert found["images"] == found["compared"] == found["same_class"] >= 1
    assert found["errors"] == {}
    assert found["largest_difference"] < 1e-3


def test_an_interactive_service(tmp_path):
    write_program(tmp_path / "program", samples.program(), {})
    with serving(catalogue(only=Server(samples.program(), "cleartext"))) as service:
        found = asked(service.address, tmp_path / "program")
    assert found["images"] == found["compared"] >= 1
    assert found["errors"] == {}


class _Deadly:
    """Ends the process that reads it, as a killed client's does."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_client_that_dies_at_once_is_counted(tmp_path):
    with serving(catalogue(only=Server(samples.program(), "cleartext"))) as service:
        found = asked(service.address, _Deadly())
    assert (found["crashed"], found["images"]) == (1, 0)


def test_a_summary_of_what_clients_saw():
    made = [Sample(0, 1.0, 0.5, "", True, 0.0), Sample(1, 2.0, 1.5, "", False, 0.25), Sample(0, 4.0, 0.0, "a rule")]
    found = summary(made, 4.0, [(0.5, 100.0), (2.0, 100.0), (3.0, 110.0)])
    assert (found["images"], found["images_per_second"], found["errors"]) == (2, 0.5, {"a rule": 1})
    assert (found["same_class"], found["largest_difference"]) == (1, 0.25)
    assert found["seconds"]["max"] == 1.5
    assert found["server_growth"] == pytest.approx(0.1)

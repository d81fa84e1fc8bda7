"""A program whose parties hide nothing, for tests of what they refuse."""

import pytest

from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Session
from tests.he.networks import network
from tests.he.parties import parties


@pytest.fixture(scope="module")
def cleartext() -> tuple[Program, Client, Session]:
    return network(), *parties(network(), "cleartext")

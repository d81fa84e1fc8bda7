"""One party's prepared work is restored from a backup, and the other party deviates: it kept its half, and asks again.

Two images under the same random numbers tell a server their difference, and a client the difference of what the server
hides from it. Neither happens: what was used has no claim outside of the folder any more.
"""

import shutil
from contextlib import closing

import numpy as np
import pytest

from privcirnet.he.mpc.local.packing import unpack
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store import Binding, MemoryStore, PreparedWork
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from tests.he.networks import network, random_image

PROGRAM = network()
IMAGES = random_image(PROGRAM, 1), random_image(PROGRAM, 2)


class Keeps(MemoryStore):
    """A deviating party's: a half is there however often it was taken."""

    def __init__(self):
        super().__init__()
        self.copies = {}

    def put(self, serial, data):
        self.copies[serial] = bytes(data)

    def serials(self):
        return [*self.copies]

    def take(self, serial):
        return bytearray(self.copies[serial])

    def drop(self, serial):
        del serial


class Overheard:
    """A session, and the shares of images that it is sent."""

    def __init__(self, session, shares):
        self.session, self.shares = session, shares

    def handle(self, message):
        if wire.begins(message) == wire.ONLINE:
            shape, t = PROGRAM.nodes[0].shape, PROGRAM.parameters.plain_modulus
            self.shares.append(unpack(wire.unframe(message, wire.ONLINE, 2)[1], shape, t).astype(np.int64))
        return self.session.handle(message)


@pytest.mark.parametrize("restored", ["client", "server"])
def test_one_restored_folder_is_not_used_again(restored, tmp_path):
    server, deviating, shares, used = Server(PROGRAM, "cleartext"), Keeps(), [], []
    folder, backup, keys = tmp_path / "prepared", tmp_path / "backup", None
    for number, image in enumerate((None, *IMAGES)):
        if number == 2:
            shutil.rmtree(folder)
            backup.rename(folder)
        with closing(PreparedWork(folder)) as prepared_work:
            stores = prepared_work.of(Binding()), deviating
            ours, theirs = stores if restored == "client" else stores[::-1]
            if restored == "client" or keys is None:
                client = Client(server.greeting(), "cleartext", store=ours)
                keys = client.keys()
            session = server.session(keys, theirs)
            if image is None:
                prepare(client, session, 1)
            else:
                if restored == "server":  # it says that both have it
                    client._prepared._agreed = {*deviating.copies}
                run(client, Overheard(session, shares), image)
                used.append(client.waited)
        if image is None:
            shutil.copytree(folder, backup)
    assert used == [False, True]
    fresh = shares if restored == "client" else shares[::2]  # between them, what a client that deviates shows
    assert len(fresh) == 2
    assert not np.array_equal(fresh[0] - IMAGES[0], fresh[1] - IMAGES[1]), "other random numbers"

"""What is made ahead for replies: used once, bounded, gone with the session."""

import numpy as np

from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.ring import sampling
from privcirnet.he.schemes.bfv.reply_stock import ReplyStock
from tests.he.networks import network, random_image
from tests.he.parties import check

N, T = 64, 97


def test_each_piece_is_used_once_and_no_more_are_made_than_asked_for(monkeypatch):
    made, drawn, uniform = [], [], sampling.uniform
    stock = ReplyStock(N, T, lambda: made.append(np.full((2, 1, N), len(made) + 1, dtype=np.uint64)) or made[-1])
    monkeypatch.setattr(sampling, "uniform", lambda shape, t: drawn.append(uniform(shape, t)) or drawn[-1])
    while stock.make(3):
        pass
    assert (len(made), len(drawn)) == (3, 3)
    assert [int(stock.hiding().max()) for _ in range(3)] == [1, 2, 3]
    assert stock.hiding() is None
    masks = stock.masks(5)
    assert (masks[:3] == np.stack(drawn[:3])).all()
    assert (masks[3:] == drawn[3]).all()
    assert drawn[3].shape == (2, N)
    assert stock.masks(1).shape == (1, N)


def test_what_is_left_is_zeroed():
    made = [np.ones((2, 1, N), dtype=np.uint64)]
    stock = ReplyStock(N, T, lambda: made[0])
    stock.make(1)
    stock.close()
    assert not made[0].any()
    assert stock.hiding() is None


def test_an_image_is_right_with_what_was_made_ahead_and_leaves_nothing_of_it():
    program = network()
    server = Server(program, "kernel")
    client = Client(server.greeting())
    session = server.session(client.keys())
    while session.make_ahead():
        pass
    stock = server.engine.stock(session._keys)
    assert len(stock._hidings) == len(stock._masks) == server.replies
    check(program, client, session, random_image(program))
    assert len(stock._hidings) == 0
    assert session.make_ahead()
    session.close()
    assert not session.make_ahead()
    assert not stock._hidings


def test_other_engines_make_nothing():
    program = network()
    server = Server(program, "cleartext")
    session = server.session(Client(server.greeting(), "cleartext").keys())
    assert not session.make_ahead()

"""What each client may ask for."""

import sqlite3
from contextlib import ExitStack, closing

import pytest

from privcirnet.errors import RuleError
from privcirnet.service.access import LOCAL
from privcirnet.service.quotas import LocalLedger, Quota, Quotas


class Clock:
    now = 1_700_000_000.0

    def __call__(self):
        return self.now


def test_sessions_of_one_and_of_all():
    with (
        closing(Quotas(Quota(sessions=2), {"mallory": Quota(sessions=0), "bob": Quota()})) as quotas,
        ExitStack() as stack,
    ):
        for _ in range(2):
            stack.enter_context(quotas.session("alice", 3))
        with pytest.raises(RuleError, match="a client has at most 2 sessions at once"), quotas.session("alice", 3):
            pass
        stack.enter_context(quotas.session("bob", 3))
        with pytest.raises(RuleError, match="a server has at most 3 sessions at once"), quotas.session("bob", 3):
            pass
        with pytest.raises(RuleError, match="a client must have a quota of sessions"), quotas.session("mallory", 9):
            pass
        stack.close()
        with quotas.session("alice", 1):
            pass
        for unbound in (LOCAL, "bob"):  # nobody can tell a plain server's clients apart; bob has a quota of his own
            with quotas.session(unbound, 2), quotas.session(unbound, 2):
                pass


def test_images_in_any_hour():
    clock = Clock()
    with closing(Quotas(Quota(images_hour=3), ledger=LocalLedger(clock=clock))) as quotas:
        for _ in range(3):
            quotas.images("alice")
            clock.now += 600
        with pytest.raises(RuleError, match="a client may begin 3 images an hour") as refused:
            quotas.images("alice")
        quotas.images("bob")
        clock.now += refused.value.retry_after_s
        quotas.images("alice")
        with pytest.raises(RuleError, match="3 images an hour"):
            quotas.images("alice")


def test_images_in_all_outlive_a_restart(tmp_path):
    clock, file = Clock(), tmp_path / "images.sqlite"
    for _ in range(2):
        with closing(Quotas(Quota(images=4), ledger=LocalLedger(file, clock))) as quotas:
            for _ in range(2):
                quotas.images("alice")
                clock.now += 10_000
    with closing(Quotas(Quota(images=4), ledger=LocalLedger(file, clock))) as quotas:
        with pytest.raises(RuleError, match="a client may begin 4 images in all"):
            quotas.images("alice")
    with closing(sqlite3.connect(file)) as stored:
        assert stored.execute("SELECT COUNT(*) FROM images").fetchone()[0] <= 2, "old minutes are put together"


@pytest.mark.parametrize("wrong", [{"sessions": -1}, {"images": -1}, {"images_hour": -1}, {"keys": 0}])
def test_quotas_that_are_none(wrong):
    with pytest.raises(RuleError, match="a quota must have"):
        Quota(**wrong)


def test_a_file_of_something_else(tmp_path):
    (tmp_path / "images.sqlite").write_text("something else, and long enough to be seen as no database at all" * 9)
    with pytest.raises(RuleError, match="the counts of images must be a file of its own"):
        Quotas(ledger=LocalLedger(tmp_path / "images.sqlite"))

"""Lines of a log: few of one kind, complete in the audit log, one line each."""

import json

from privcirnet.service.log import Log


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_lines_of_one_kind_about_one_client_are_limited_and_counted():
    clock, lines, audited = Clock(), [], []
    log = Log(lines.append, "json", audited.append, clock)
    for _ in range(1000):
        log.audit("refused", "mallory")
    log.event("refused", client="alice")
    assert len(lines) == 21
    assert len(audited) == 1000
    clock.now = 61.0
    log.event("refused", client="mallory")
    assert json.loads(lines[-1])["left_out"] == 980


def test_many_clients_take_little_memory():
    log = Log()
    for number in range(20_000):
        log.event("refused", client=str(number))
    assert len(log._seen) < 5000


def test_a_line_is_one_line_whatever_is_in_it():
    lines = []
    for form in ("json", "text"):
        Log(lines.append, form).event("refused", client="a\nb", why="\x1b[31m\u202e\ud800", nothing=None)
    assert all("\n" not in line and line.isprintable() for line in lines)
    assert json.loads(lines[0])["client"] == "a\nb"
    assert "nothing" not in lines[1]

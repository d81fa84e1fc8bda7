"""The two ways, timed at a toy ring degree; python -m papers.ckks does it at n = 65536."""

from papers.ckks import fused_seconds
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from tests.he.ckks.test_bootstrapping import toy


def test_both_ways_are_run_and_shown(monkeypatch):
    refresh = Bootstrapping(toy(spare=5), to_coefficients=2, to_slots=2)
    monkeypatch.setattr(fused_seconds, "Bootstrapping", lambda _: refresh)
    monkeypatch.setattr(fused_seconds, "WIDTH", 8)
    ticks = []
    found = fused_seconds.run_fused(1, lambda: ticks.append(1))
    assert len(ticks) == fused_seconds.fused_runs(1)
    assert found["precision_bits_fused"] > 15
    assert all(found[name] > 0 for name in found)
    assert set(fused_seconds.fused_facts(found)) == {"convolution fused", "in a row"}

"""The hub out of reach: what is in its cache is used, all else is refused at once."""

import socket
import threading

import pytest
from huggingface_hub import constants

from privcirnet.artifact import hub
from privcirnet.config import run_file
from privcirnet.errors import RuleError


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "https://127.0.0.1:1")
    monkeypatch.setattr(hub, "getproxies", dict)
    return tmp_path


def test_a_run_may_be_one_of_the_hub(nowhere):
    commit = "0" * 40
    folder = nowhere / "models--me--mine"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (file := folder / "snapshots" / commit / "checkpoint.safetensors").parent.mkdir(parents=True)
    file.write_bytes(b"tensors")
    assert run_file("hf-hub:me/mine", "checkpoint.safetensors", "train.py", "recipe.init") == file
    with pytest.raises(RuleError, match=r"a network of the hub must be there: got me/other: .*; connect to it once"):
        run_file("hf-hub:me/other", "checkpoint.safetensors", "train.py", "recipe.init")


def test_it_is_asked_nothing_while_it_is_out_of_reach(nowhere, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub.offline_without_hub():
        assert constants.is_offline_mode()
    assert not constants.is_offline_mode()
    monkeypatch.setattr(hub, "_reachable", lambda _: True)
    with hub.offline_without_hub():
        assert not constants.is_offline_mode()


def test_a_name_that_is_looked_up_without_end_is_out_of_reach(nowhere, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(hub, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(hub.socket, "create_connection", lambda *_: ended.wait() and socket.socket())
    assert not hub._reachable("https://huggingface.co")
    ended.set()


def test_a_proxy_stands_for_the_hub(nowhere, monkeypatch):
    places = []
    monkeypatch.setattr(hub.socket, "create_connection", lambda place, _: places.append(place) or socket.socket())
    monkeypatch.setattr(hub, "getproxies", lambda: {"https": "http://proxy:3128"})
    assert hub._reachable("https://huggingface.co")
    assert places == [("proxy", 3128)]

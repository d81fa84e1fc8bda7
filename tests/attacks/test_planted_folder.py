"""Another user makes the folder that a service is about to keep keys, weights or prepared work in, and owns what is in it.

Modes say nothing of it: the folder is its owner's alone, and the service of root may write there. Its owner could replace
weights, read images from prepared work, and put keys under others' names.
"""

import os

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.system.files import private_folder
from privcirnet.service.store import KeyStore

USES = {
    "state and weights": private_folder,
    "keys": lambda folder: KeyStore(folder=folder),
    "prepared work": PreparedWork,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_folder_of_another_user_is_refused_to_everybody_else(use, tmp_path, monkeypatch):
    folder, own = tmp_path / "planted", os.geteuid()
    folder.mkdir(mode=0o700)
    if own == 0:
        os.chown(folder, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    expected = (
        rf"must be this user's own: got .*planted of user {65534 if own == 0 else own}, for user 0; run as its owner"
    )
    with pytest.raises(RuleError, match=expected):
        use(folder)
    assert not [*folder.iterdir()], "nothing is left there"


def test_one_s_own_is_taken(tmp_path):
    private_folder(tmp_path / "own" / "folder")
    private_folder(tmp_path / "own" / "folder")

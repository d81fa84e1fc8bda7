"""Sweeps by Hydra's launchers: jobs side by side, each in a folder of its own, on this machine and on a Ray."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import ROOT
from tests.papers.pareto.case import dense

pytestmark = pytest.mark.slow
SETTINGS = {"joblib": ["hydra.launcher.n_jobs=2"], "ray": ["hydra.launcher.ray.init.address=local"]}


@pytest.mark.parametrize("launcher", SETTINGS)
def test_jobs_have_folders_of_their_own(launcher, tmp_path):
    if find_spec(f"hydra_plugins.hydra_{launcher}_launcher") is None:
        pytest.skip(f"hydra-{launcher}-launcher is not installed")
    dense(tmp_path / "train")
    common = [f"root={tmp_path}", f"out={tmp_path}/search-${{budget}}", "he.profile=counted", "samples=32"]
    words = ["-m", f"hydra/launcher={launcher}", *SETTINGS[launcher], "budget=b2,b4", *common]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "search.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads((tmp_path / f"search-b{b}" / "summary.json").read_text())["config"]["budget"] for b in (2, 4)]
    assert found == ["b2", "b4"]
    assert (tmp_path / "multirun.yaml").is_file()

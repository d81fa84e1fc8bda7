"""Two processes on the CPU give what one gives, in float64 up to the rounding of sums in another order."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from privcirnet import distributed
from privcirnet.blocksize_search.curvature import diagonal_fisher
from privcirnet.config import RecipeConfig
from privcirnet.data import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.passes.convert import circulant_
from privcirnet.train import checkpoint
from privcirnet.train.accuracy import accuracy
from privcirnet.train.loop import fit
from privcirnet.train.record import EpochProgress
from tests.blocksize_search.test_fisher import NAMES, loader, small
from tests.train.runs import bars, without_times

TOLERANCE = 1e-11
"""Relative to the largest weight. A rounding is 1e-16; some thirty steps add up and amplify them, to 2e-14 here."""
PROCESSES = 2


class Exact(ImageData):
    """Images in float64."""

    def real(self, images: Tensor) -> Tensor:
        return super().real(images).double()


def images(count: int, tests: int) -> Exact:
    return Exact(*bars(count, 1), *bars(tests, 2), log_step=-4, levels=15, classes=("column", "row"))


DATA, FEW = images(97, 41), images(22, 5)
UNEVEN = RecipeConfig(
    epochs=3, batch_size=15, optimizer="sgd", learning_rate=0.05, weight_decay=0.01, clip_gradient=0.0
)
"""Batches of 15 images and a last one of 7."""
ONCE = dataclasses.replace(UNEVEN, epochs=1)
EMPTY = dataclasses.replace(UNEVEN, batch_size=16)
"""The last batch is one image: the second process has none."""
CHANGED = dataclasses.replace(
    UNEVEN,
    crop=1,
    flip=True,
    erase=0.3,
    rand_augment=2,
    mixup=0.4,
    cutmix=1.0,
    clip_gradient=1.0,
    ema=0.9,
    channels_last=True,
)
OUTLIERS = {"outlier_penalty": 0.5}
COMPILED = {"compile": True}
SETTINGS = {"settings": "of a run"}


def with_batch_norm() -> nn.Module:
    """A batch norm, and one shared by blocks."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False)]
    model = nn.Sequential(*layers, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)).double()
    return circulant_(model, {"3": 4})


def with_aespa() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), Aespa2d(8), nn.Conv2d(8, 8, 3), Aespa2d(8), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(32, 8), Aespa1d(8), nn.Linear(8, 2)).double()
    return circulant_(model, {"3": 4})


def with_dropout() -> nn.Module:
    return nn.Sequential(*with_batch_norm(), nn.Dropout(0.2)).double()


CASES = {
    "batch norm, uneven": (with_batch_norm, UNEVEN),
    "batch norm, an empty share": (with_batch_norm, EMPTY),
    "batch norm, changed images": (with_batch_norm, CHANGED),
    "batch norm, distilled": (with_batch_norm, dataclasses.replace(EMPTY, distillation=0.5)),
    "aespa, uneven": (with_aespa, UNEVEN),
    "aespa, changed images": (with_aespa, CHANGED),
    "aespa, in parts": (with_aespa, dataclasses.replace(UNEVEN, batch_size=40, optimizer="muon", ema=0.9)),
    "aespa, observer": (with_aespa, dataclasses.replace(CHANGED, **OUTLIERS)),
    "aespa, observer, an empty share": (with_aespa, dataclasses.replace(EMPTY, clip_gradient=1.0, **OUTLIERS)),
    "batch norm, an empty share, compiled": (with_batch_norm, dataclasses.replace(EMPTY, **COMPILED)),
    "aespa, uneven, compiled": (with_aespa, dataclasses.replace(UNEVEN, **COMPILED, **OUTLIERS)),
}


def trained(build, recipe: RecipeConfig, data: ImageData = DATA, **options) -> dict:
    model, teacher = build(), with_batch_norm().eval() if recipe.distillation else None
    before = accuracy(model, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcirnet.train.callbacks.LIMIT", 2.0)  # or nothing of these images costs anything
        patch.setattr("privcirnet.train.loop.MOST", 20)  # images that an AESPA measures together
        patch.setattr("privcirnet.train.loop.COMPILE_BACKEND", "aot_eager")  # no compiler
        history = without_times(fit(model, data, recipe, 3, teacher, **options))
    return {"history": history, "state": model.state_dict(), "before": before}


def resumed(folder: Path) -> tuple[dict, dict]:
    """A whole run with dropout, and one that continues from its first epoch."""

    def after_epoch(progress: EpochProgress) -> None:
        if progress.epoch == 1:
            checkpoint.save(folder, progress, SETTINGS)

    whole = trained(with_dropout, UNEVEN, after_epoch=after_epoch)
    start = distributed.from_first(lambda: checkpoint.load(folder, SETTINGS))
    assert start.epoch == 1
    torch.manual_seed(99)
    return whole, trained(with_dropout, UNEVEN, start=start)


def refused() -> str:
    try:
        distributed.prepare_(nn.Sequential(nn.BatchNorm1d(2)))
    except RuleError as error:
        return str(error)
    return ""


def fisher_of_some() -> list[dict]:
    """Of 7 samples, in chunks of 2 a process from batches of 5: the second process has no share of the second chunk."""
    done: list[int] = []
    found = diagonal_fisher(small(), loader(batch=5), NAMES, max_samples=7, chunk=2, progress=done.append)
    return [found, {"progress": done}]


@contextmanager
def together(rank: int, folder: Path, processes: int = PROCESSES) -> Iterator[None]:
    """This process is one of some that meet in a folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=processes)
    try:
        yield
        dist.barrier()  # gloo's threads may abort a process whose peer has left
    finally:
        dist.destroy_process_group()


def work(rank: int, folder: Path) -> None:
    """What each process does."""
    with together(rank, folder):
        found = {name: trained(*case) for name, case in CASES.items()}
        found["fisher"] = fisher_of_some()
        found["from first"] = distributed.from_first(lambda: rank + 5)
        found["shares"] = [distributed.share(torch.arange(count)).tolist() for count in (0, 1, 5)]
        found["refused"] = refused()
    torch.save(found, folder / f"{rank}.pt")


def resume(rank: int, folder: Path) -> None:
    """What each of three processes does: sums of two are the same in any order."""
    with together(rank, folder, 3):
        found = resumed(folder), distributed.rows(torch.get_rng_state())
    torch.save(found, folder / f"{rank}.pt")


def follow(_: int, folder: Path) -> None:
    """What the second process does where the test itself is the first."""
    with together(1, folder):
        trained(with_batch_norm, ONCE, FEW)
    os._exit(0)  # one of gloo's threads may still run, which aborts an interpreter that takes its time to end


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("processes")
    spawn(work, (folder,), nprocs=PROCESSES)
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


def assert_same_weights(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert state.keys() == expected.keys()
    size = max(value.abs().max() for value in expected.values() if value.is_floating_point())
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=TOLERANCE * size.item(), msg=name)


def test_an_epoch_of_uneven_shares_gives_the_weights_of_one_process(tmp_path):
    """Quickly: this process is the first of two. Of 15 and 7 images it has 8 and 4."""
    second = spawn(follow, (tmp_path,), nprocs=1, join=False)
    expected = trained(with_batch_norm, ONCE, FEW)
    with together(0, tmp_path):
        found = trained(with_batch_norm, ONCE, FEW)
    second.join()
    assert_same_weights(found["state"], expected["state"])
    assert found["history"] == [pytest.approx(entry, rel=TOLERANCE) for entry in expected["history"]]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_one_process(found, case):
    expected, (first, second) = trained(*CASES[case]), (f[case] for f in found)
    assert all(torch.equal(first["state"][name], value) for name, value in second["state"].items())
    assert_same_weights(first["state"], expected["state"])
    assert first["before"] == second["before"] == expected["before"]
    for entries in zip(first["history"], second["history"], expected["history"], strict=True):
        assert entries[0] == entries[1]
        assert entries[0] == pytest.approx(entries[2], rel=TOLERANCE)


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    """Dropout included, which each process draws for itself."""
    spawn(resume, (tmp_path,), nprocs=3)
    for rank in range(3):
        (whole, continued), chance = torch.load(tmp_path / f"{rank}.pt")
        assert continued["history"] == whole["history"]
        assert all(torch.equal(continued["state"][name], value) for name, value in whole["state"].items())
        assert len({tuple(state.tolist()) for state in chance}) == 3


@pytest.mark.slow
def test_fisher_information_is_that_of_one_process(found):
    expected, _ = fisher_of_some()
    for process in found:
        fisher, done = process["fisher"]
        assert done == {"progress": [4, 5, 7]}
        for name in NAMES:
            torch.testing.assert_close(fisher[name], expected[name], rtol=1e-12, atol=0)


@pytest.mark.slow
def test_shares_and_what_the_first_makes(found):
    assert [process["from first"] for process in found] == [5, 5]
    assert [process["shares"] for process in found] == [[[], [0], [0, 1, 2]], [[], [], [3, 4]]]


@pytest.mark.slow
def test_other_batch_norms_are_refused(found):
    for process in found:
        assert process["refused"].startswith("batch norms over several processes must be BatchNorm2d: got BatchNorm1d;")


def test_one_process_is_left_alone():
    model, x = nn.Sequential(nn.BatchNorm2d(2), Aespa2d(2)), torch.arange(3.0)
    distributed.prepare_(model)
    assert type(model[0]) is nn.BatchNorm2d
    assert model[1].total is None
    assert distributed.share(x) is distributed.total(x) is x
    assert torch.equal(distributed.own_row(distributed.rows(x)), x)
    assert distributed.rank() == 0

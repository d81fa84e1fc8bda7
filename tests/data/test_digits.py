import dataclasses
import sys

import pytest
import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split

from privcirnet.data import Files, cache, load, loading
from privcirnet.data.dataset import batches
from privcirnet.errors import RuleError

HELD_OUT = [7, 6, 3, 7, 7, 3, 2, 8, 9, 3]
FIRST_IMAGE_FOURTH_ROW = [0, 0, 0, 4, 10, 16, 6, 0]


@pytest.mark.parametrize(("seed", "fraction"), [(0, 0.2), (3, 0.37)])
def test_the_arrays_are_scikit_learns_with_and_without_a_cache(tmp_path, monkeypatch, seed, fraction):
    pixels, labels = datasets.load_digits(return_X_y=True)
    parts = train_test_split(pixels, labels, test_size=fraction, random_state=seed, stratify=labels)
    images = [torch.from_numpy(part).reshape(-1, 1, 8, 8).to(torch.uint8) for part in parts[:2]]
    expected = *images, *(torch.from_numpy(part) for part in parts[2:])
    for folder in ("", str(tmp_path), str(tmp_path)):
        data = load("digits", seed, fraction, Files(cache=folder))
        found = data.train_images, data.test_images, data.train_labels, data.test_labels
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        if folder:
            monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert len(list(tmp_path.iterdir())) == 1


def test_another_release_of_scikit_learn_is_asked_again(tmp_path, monkeypatch):
    load("digits", files=Files(cache=str(tmp_path)))
    monkeypatch.setattr(loading, "digits_release", lambda: "0.0")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.datasets", None)
        with pytest.raises(ImportError):
            load("digits", files=Files(cache=str(tmp_path)))
    load("digits", files=Files(cache=str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 1


def test_shapes_levels_and_meaning():
    data = load("digits")
    assert (data.shape, data.count, len(data.test_labels)) == ((1, 8, 8), 1437, 360)
    assert (int(data.train_images.min()), int(data.train_images.max())) == (0, data.levels) == (0, 16)
    real = data.real(data.test_images)
    assert real.dtype == torch.float32
    assert (real.min(), real.max()) == (0, 1)
    assert torch.equal(real * 16, data.test_images.float())
    assert data.classes == tuple("0123456789")


def test_the_default_split_is_the_one_results_are_reported_on():
    data = load("digits")
    assert data.test_labels[:10].tolist() == HELD_OUT
    assert data.test_images[0, 0, 3].tolist() == FIRST_IMAGE_FOURTH_ROW


def test_batches_in_order_and_shuffled():
    data = load("digits")
    images, labels = data.test_images, data.test_labels
    parts = list(batches(images, labels, 100))
    assert [len(part) for _, part in parts] == [100, 100, 100, 60]
    assert torch.equal(torch.cat([part for part, _ in parts]), images)
    shuffled = list(batches(images, torch.arange(360), 100, torch.Generator().manual_seed(0)))
    order = torch.cat([part for _, part in shuffled])
    assert not torch.equal(order, torch.arange(360))
    assert torch.equal(order.sort().values, torch.arange(360))
    assert torch.equal(torch.cat([part for part, _ in shuffled]), images[order])


def test_an_unknown_data_set():
    with pytest.raises(RuleError, match="the data set must be a known one: got 'digitz'; use data=digits"):
        load("digitz")


def test_a_sample_has_all_classes_and_is_the_same_at_every_call():
    data = load("digits")
    order = data.train_labels.argsort()
    by_class = dataclasses.replace(data, train_images=data.train_images[order], train_labels=data.train_labels[order])
    images, labels = by_class.sample(100)
    assert images.shape == (100, 1, 8, 8)
    assert labels.unique().tolist() == list(range(10))
    assert all(torch.equal(a, b) for a, b in zip((images, labels), by_class.sample(100), strict=True))
    assert torch.equal(by_class.part(100).train_images, images)
    assert len(by_class.sample(10**6)[1]) == len(data.train_labels)


def test_held_out_images_are_spread_over_all():
    data = load("digits")
    images, labels = data.held_out(4)
    assert torch.equal(images, data.test_images[[0, 90, 180, 270]])
    assert torch.equal(labels, data.test_labels[[0, 90, 180, 270]])
    assert torch.equal(data.held_out(360)[0], data.test_images)
    assert torch.equal(data.held_out(10**6)[1], data.test_labels)
    assert len(data.held_out(0)[1]) == 0


def test_no_room_for_the_cache_is_no_obstacle_unless_it_was_asked_for(monkeypatch, tmp_path):
    def full(*_):
        raise RuleError("there must be room for the cache", got="none", remedy="use data.cache=DIR")

    expected = load("digits", files=Files(cache=""))
    monkeypatch.setattr(cache, "mapped", full)
    assert torch.equal(load("digits").train_images, expected.train_images)
    with pytest.raises(RuleError, match="room for the cache"):
        load("digits", files=Files(cache=str(tmp_path)))

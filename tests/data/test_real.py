"""The real archives: counts, shapes, class order, mean and standard deviation of each channel."""

from pathlib import Path

import pytest

from privcirnet.data import Files, load

ARCHIVES = Path(__file__).parents[3] / "shared" / "data"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MNIST_COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not ARCHIVES.is_dir(), reason="there is no folder of image archives beside the project"),
]


@pytest.fixture(scope="module")
def loaded(image_cache):
    """A data set, decoded into a cache that goes with the tests."""
    return lambda name: load(name, files=Files(str(ARCHIVES), cache=str(image_cache)))


def check_channels(images, mean, std):
    """Of pixels in [0, 1], within what the loss of JPEG moves."""
    shares = images.flatten(2).transpose(0, 1).flatten(1).double() / 255
    assert shares.mean(1).tolist() == pytest.approx(mean, abs=0.002)
    assert shares.std(1).tolist() == pytest.approx(std, abs=0.002)


@pytest.mark.slow
def test_cifar10(loaded):
    data = loaded("cifar10")
    assert (data.train_images.shape, data.test_images.shape) == ((50000, 3, 32, 32), (10000, 3, 32, 32))
    assert data.classes == CIFAR10
    assert data.train_labels.bincount().tolist() == [5000] * 10
    assert data.test_labels.bincount().tolist() == [1000] * 10
    check_channels(data.train_images, [0.49140, 0.48216, 0.44653], [0.24703, 0.24349, 0.26159])


@pytest.mark.slow
def test_cifar100(loaded):
    data = loaded("cifar100")
    assert (data.train_images.shape, data.test_images.shape) == ((50000, 3, 32, 32), (10000, 3, 32, 32))
    assert (data.classes[0], data.classes[90], data.classes[99]) == ("apple", "train", "worm")
    assert data.train_labels.bincount().tolist() == [500] * 100
    assert data.test_labels.bincount().tolist() == [100] * 100
    check_channels(data.train_images, [0.50698, 0.48653, 0.44078], [0.26732, 0.25646, 0.27615])
    check_channels(data.test_images, [0.50869, 0.48737, 0.44180], [0.26824, 0.25738, 0.27710])


def test_mnist(loaded):
    data = loaded("mnist")
    assert (data.train_images.shape, data.test_images.shape) == ((60000, 1, 28, 28), (10000, 1, 28, 28))
    assert data.train_labels.bincount().tolist() == MNIST_COUNTS["train"]
    assert data.test_labels.bincount().tolist() == MNIST_COUNTS["test"]
    check_channels(data.train_images, [0.13066], [0.30811])
    check_channels(data.test_images, [0.13251], [0.31048])


@pytest.mark.slow
def test_tiny_imagenet(loaded):
    data = loaded("tiny_imagenet")
    assert (data.train_images.shape, data.test_images.shape) == ((20000, 3, 64, 64), (5000, 3, 64, 64))
    assert data.classes == tuple(sorted(data.classes))
    assert data.classes[0] == "n01443537"
    assert data.train_labels.bincount().tolist() == [100] * 200
    assert data.test_labels.bincount().tolist() == [25] * 200
    check_channels(data.train_images, [0.47905, 0.44735, 0.39711], [0.27658, 0.26931, 0.28177])
    check_channels(data.test_images, [0.48519, 0.45113, 0.39918], [0.27667, 0.26957, 0.28244])

import pytest
import torch

from privcirnet.train.augmentation import Mixer


def batch(count):
    labels = torch.arange(count)
    return torch.arange(count).float()[:, None, None, None].expand(-1, 1, 8, 8).clone(), labels


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("count", [4, 5])
def test_mixup_mixes_images_and_labels_alike(count):
    images, labels = batch(count)
    mixed, targets = Mixer(1.0, 0.0, 6)(images.clone(), labels, generator())
    even = count // 2 * 2
    share = targets[0, 0].item()
    assert 0 < share < 1
    expected = share * images[:even] + (1 - share) * images[:even].flip(0)
    torch.testing.assert_close(mixed[:even], expected)
    torch.testing.assert_close(targets.sum(1), torch.ones(count))
    if count > even:
        assert torch.equal(mixed[even], images[even])
        assert targets[even].tolist() == torch.nn.functional.one_hot(labels, 6)[even].tolist()


def test_cutmix_s_labels_are_shares_of_the_area():
    images, labels = batch(4)
    mixed, targets = Mixer(0.0, 1.0, 6)(images.clone(), labels, generator(3))
    kept = (mixed[1] == images[1]).float().mean().item()
    assert 0 < kept < 1
    assert targets[1, labels[1]].item() == pytest.approx(kept, abs=1e-6)


def test_the_generator_alone_decides():
    found = [Mixer(0.8, 1.0, 6)(*batch(6), generator(seed))[0] for seed in (1, 1, 2)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_images_that_are_given_stay():
    images, labels = batch(5)
    for mixer in (Mixer(1.0, 0.0, 6), Mixer(0.0, 1.0, 6)):
        mixer(images, labels, generator())
        assert torch.equal(images, batch(5)[0])

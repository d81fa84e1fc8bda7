"""Small data sets in every format, written to a folder; what they hold is known without reading them."""

import gzip
import hashlib
import pickle
import tarfile

import numpy as np
from PIL import Image

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pixels(*key, shape=(3, 8, 8)):
    """Random pixels (C, H, W) that belong to a key."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:4], "big")
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_image(path, array):
    """(3, H, W) or, grey, (1, H, W)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0)).save(path)


def write_folders(root, classes=CIFAR10, each=(3, 2), held_out="test", shape=(3, 8, 8)):
    """Image folders; returns {part: images ordered by class and name}."""
    images = {}
    for part, folder, count in (("train", "train", each[0]), ("test", held_out, each[1])):
        images[part] = np.stack([pixels(part, name, i, shape=shape) for name in classes for i in range(count)])
        for number, image in enumerate(images[part]):
            write_image(root / folder / classes[number // count] / f"{number % count}.png", image)
    return images


def write_idx(folder, compressed=True, counts=(30, 20)):
    """MNIST's four files; returns {name: array}."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, count in zip(("train", "t10k"), counts, strict=True):
        arrays[f"{part}-images-idx3-ubyte"] = pixels(part, shape=(count, 28, 28))
        arrays[f"{part}-labels-idx1-ubyte"] = np.arange(count, dtype=np.uint8) % 10
    for name, array in arrays.items():
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        content = header + array.tobytes()
        (folder / f"{name}.gz" if compressed else folder / name).write_bytes(
            gzip.compress(content) if compressed else content
        )
    return arrays


def write_batches(root, kind, monkeypatch):
    """CIFAR's pickled batches, with their sums put where torchvision has the published ones; returns images, labels."""
    folder = root / kind.base_folder
    folder.mkdir(parents=True, exist_ok=True)
    fine = kind.__name__ == "CIFAR100"
    classes = [f"class {i:02}" for i in range(100)] if fine else list(CIFAR10)
    images, labels = {}, {}

    def write(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    for part, names in (("train", kind.train_list), ("test", kind.test_list)):
        images[part] = pixels(part, shape=(10 * len(names), 3, 32, 32))
        labels[part] = [(7 * i) % len(classes) for i in range(10 * len(names))]
        sums = []
        for i, (name, _) in enumerate(names):
            some = slice(10 * i, 10 * i + 10)
            content = {
                "data": images[part][some].reshape(10, -1),
                "fine_labels" if fine else "labels": labels[part][some],
            }
            sums.append([name, write(name, content)])
        monkeypatch.setattr(kind, f"{part}_list", sums)
    meta = {**kind.meta, "md5": write(kind.meta["filename"], {kind.meta["key"]: classes})}
    monkeypatch.setattr(kind, "meta", meta)
    return images, labels, tuple(classes)


def write_tiny_imagenet(root):
    """Three classes, one grey image in each part; returns images and labels of each part."""
    wnids = ("n02", "n01", "n03")
    root.mkdir(parents=True, exist_ok=True)
    (root / "wnids.txt").write_text("\n".join(wnids))
    images, labels, lines = {"train": [], "test": []}, {"train": [], "test": []}, []
    for label, wnid in enumerate(sorted(wnids)):
        for i in range(2):
            grey = wnid == "n03" and i == 1
            image = pixels(wnid, i, shape=(1 if grey else 3, 64, 64))
            write_image(root / "train" / wnid / "images" / f"{wnid}_{i}.png", image)
            images["train"].append(np.broadcast_to(image, (3, 64, 64)))
            labels["train"].append(label)
    for i, wnid in enumerate(("n03", "n01", "n02", "n01")):
        image = pixels("val", i, shape=(3 if i else 1, 64, 64))
        write_image(root / "val" / "images" / f"val_{i}.png", image)
        lines.append(f"val_{i}.png\t{wnid}\t0\t0\t63\t63\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    for i, label in ((1, 0), (3, 0), (2, 1), (0, 2)):
        images["test"].append(np.broadcast_to(pixels("val", i, shape=(3 if i else 1, 64, 64)), (3, 64, 64)))
        labels["test"].append(label)
    return {part: np.stack(some) for part, some in images.items()}, labels


def pack(folder, archive, inside=""):
    """A folder as a .tar or .tar.gz, its names in no useful order."""
    with tarfile.open(archive, "w:gz" if archive.name.endswith("gz") else "w") as tar:
        for path in sorted(folder.rglob("*"), key=lambda p: hashlib.sha256(str(p).encode()).digest()):
            if path.is_file():
                tar.add(path, f"{inside}/{path.relative_to(folder)}" if inside else str(path.relative_to(folder)))
    return archive

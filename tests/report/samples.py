"""Summaries of a chain of runs as the scripts write them, and a page taken apart."""

import json
from html.parser import HTMLParser

import numpy as np

from privcirnet.report import build_page, load_runs

EVIL = "stem.<script>alert('&')</script>[bold]"


def training(stage, top1, parameters):
    history = [{"epoch": e, "loss": 2.0 / e, "top1": top1 - 5 + e} for e in range(1, 4)]
    return {
        "stage": stage,
        "model": "lola-cifar",
        "data": "digits",
        "top1": top1,
        "epochs": 3,
        "seconds": 41.7,
        "parameters": parameters,
        "history": history,
    }


def layer(name, kind, seed, block_size=None):
    return {
        "name": name,
        "kind": kind,
        "encoding": "slots" if kind == "square" else "cirencode",
        "block_size": block_size,
        "rotations": 0 if kind == "square" else 1100 + seed,
        "pmults": 21000 + seed,
        "ciphertexts_up": 30 + seed,
        "ciphertexts_down": 50 + seed,
        "bytes_up": 1_230_400 + 1000 * seed,
        "bytes_down": 2_340_500 + 1000 * seed,
        "seconds_predicted": 0.1 + seed / 100,
        "seconds": 0.12 + seed / 90,
    }


def cost(seconds, size, rounds, **links):
    """Costs of an image; a link's seconds are of work, bytes and round trips."""
    names = "compute", "transfer", "round_trips"
    predicted = {name: dict(zip(names, parts, strict=True)) | {"seconds": sum(parts)} for name, parts in links.items()}
    return {"seconds": seconds, "bytes_up": 0, "bytes_down": size, "rounds": rounds, "links": predicted}


COMPARED = {"processes": 1, "argmax_equal": 6, "logit_max_difference": 0.0, "logit_range": 9.5, "seconds_server": 0.456}


def summaries():
    blocks = {EVIL: 1, "body.conv1": 4, "body.conv2": 8, "head": 2}
    sizes = {EVIL: [1], "body.conv1": [1, 2, 4, 8], "body.conv2": [1, 2, 4, 8, 16], "head": [1, 2]}
    return {
        "train": training("train", 97.83, 262_656),
        "search": {
            "counted": False,
            "budget_s": 0.9,
            "latency_predicted_s": 0.853,
            "uniform": {str(b): {"latency_predicted_s": s} for b, s in ((1, 3.1), (2, 1.7), (4, 1.0), (8, 0.7))},
            "status": "Optimal",
            "block_sizes": blocks,
            "sensitivity": {m: {str(b): 0 if b == 1 else 3e-5 * b**2.6 for b in sizes[m]} for m in blocks},
            "latency": {m: {str(b): 0.9 / b for b in sizes[m]} for m in blocks},
            "activations": {},
            "seconds": 12.3,
        },
        "finetune": training("finetune", 97.12, 61_234),
        "qat": training("qat", 96.94, 61_234),
        "export": {
            "choice": {"reason": "n = 8192 is <fast> enough", "table": ["row"]},
            "program": "program",
            "mode": "interactive",
            "nodes": 12,
            "linear": 4,
            "plain_modulus": 1099511922689,
            "plain_modulus_bits": 41,
            "ring_degree": 8192,
            "log_q": 214,
            "security_bits": 128,
            "max_value_bits": 22,
            "bounds": "proved",
            "bounds_bits": {EVIL: 22},
            "guard_bits": 3,
            "answer": "logits",
            "output_bits": 20,
            "truncation": {"failure_per_image_log2": -9.4, "unnoticed_per_image_log2": -30.0},
            "flooding_bits": 43,
            "flooding_distance_bits": 34.25,
            "bytes_plaintexts": 12_345_678,
            "bytes_plaintexts_dense": 45_678_901,
            "stacks": {},
            "bytes_stacks": 0,
            "seconds": 3.2,
        },
        "infer": {
            "engine": "tenseal",
            "images": 6,
            "top1_float": 100.0,
            "top1_encrypted": 83.33,
            "cost": cost(0.912, 9_876_543, 6),
            "seconds_images": [3.84, *5 * [0.912]],
            "seconds_setup": 1.5,
            "seconds_client": 0.345,
            "bytes_keys": 23_456_789,
            "memory": {"both": 612_000_000},
            "audit": {
                "mode": "integer",
                **COMPARED,
                "top1_clear": 83.33,
                "logits_equal": 6,
                "unit": "1 unit of each truncation",
                "wrong_nodes": [],
            },
            "refused": [],
            "layers": [
                layer(EVIL, "conv", 1, 1),
                layer("square1", "square", 2),
                layer("body.conv1", "conv", 3, 4),
                layer("body.conv2", "conv", 4, 8),
                layer("head", "gemm", 5, 2),
            ],
            "predictions": [
                {"index": i, "label": i, "float": i, "clear": i if i else 7, "encrypted": i if i else 7}
                for i in range(6)
            ],
        },
    }


def write(root, contents, shape=(6, 8, 8)):
    for stage, summary in contents.items():
        (root / stage).mkdir(parents=True, exist_ok=True)
        (root / stage / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(root / "infer" / "images.npz", images=images)
    return root


class Elements(HTMLParser):
    """Every element with its attributes, and the text of every table cell, by section."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.cells, self.section, self.inside = [], {}, None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "section":
            self.section = attributes["id"]
        if tag in ("td", "th"):
            self.inside = True
            self.cells.setdefault(self.section, []).append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.cells[self.section][-1] += data.strip()

    def of_class(self, tag, name):
        return [a for t, a in self.elements if t == tag and name in (a.get("class") or "").split()]


def page_with(root, change):
    contents = summaries()
    change(contents)
    return build_page(load_runs(write(root, contents)))

"""The model card of a checkpoint: its network, images and measurements, for people and for a hub."""

from collections import Counter
from collections.abc import Mapping

from privcirnet.artifact import Checkpoint

STATED = "top-1", "encrypted image, seconds", "encrypted image, bytes", "licence of the data"
"""Rows that a card always has, at least as "not stated"."""


def card(checkpoint: Checkpoint, about: Mapping[str, object]) -> str:
    """Return a card in Markdown.

    Args:
        about: further rows; "licence" goes into the head, where hubs look for it.
    """
    assert checkpoint.inputs is not None
    rows = {
        "network": f"`{checkpoint.model}`"
        + "".join(f", {name}={value}" for name, value in checkpoint.arguments.items())
    }
    rows["images"] = " x ".join(map(str, checkpoint.inputs.shape)) + (
        f", {checkpoint.inputs.data}" if checkpoint.inputs.data else ""
    )
    rows["classes"] = f"{len(checkpoint.inputs.classes)}: {', '.join(checkpoint.inputs.classes[:20])}"
    rows["stored numbers"] = f"{sum(tensor.size for tensor in checkpoint.tensors.values()):,}"
    blocks = Counter(checkpoint.block_sizes.values())
    rows["block size: layers"] = ", ".join(f"{b}: {count}" for b, count in sorted(blocks.items())) or "none: dense"
    rows["bits"] = (
        f"{checkpoint.bits.weight} / {checkpoint.bits.activation} / {checkpoint.bits.stream}"
        if checkpoint.bits
        else "not quantized"
    )
    rows |= {name: "not stated" for name in STATED} | {name: str(value) for name, value in about.items()}
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items() if name != "licence")
    licence = f"license: {about['licence']}\n" if "licence" in about else ""
    return f"""---
library_name: privcirnet
tags: [privcirnet, block-circulant, homomorphic-encryption, image-classification]
{licence}---

# {checkpoint.model}

| | |
|---|---|
{table}

```python
import privcirnet as pc

network = pc.network("hf-hub:OWNER/NAME")  # or this folder
image = network.preprocess("picture.png")
print(network.classes[network(image).argmax()])
```
"""

"""The model card of a checkpoint: what it is, what it reads, and what was measured, for people and for a hub."""

from collections import Counter
from collections.abc import Mapping

from privcirnet.artifact import Checkpoint

STATED = "top-1", "encrypted image, seconds", "encrypted image, bytes", "licence of the data"
"""What a card says even if it is only that nobody stated it."""


def card(held: Checkpoint, about: Mapping[str, object]) -> str:
    """Return a card in Markdown.

    Args:
        about: further rows; "licence" goes into the head, where hubs look for it.
    """
    assert held.inputs is not None
    rows = {"network": f"`{held.model}`" + "".join(f", {name}={value}" for name, value in held.arguments.items())}
    rows["images"] = " x ".join(map(str, held.inputs.shape)) + (f", {held.inputs.data}" if held.inputs.data else "")
    rows["classes"] = f"{len(held.inputs.classes)}: {', '.join(held.inputs.classes[:20])}"
    rows["stored numbers"] = f"{sum(tensor.size for tensor in held.tensors.values()):,}"
    blocks = Counter(held.block_sizes.values())
    rows["block size: layers"] = ", ".join(f"{b}: {count}" for b, count in sorted(blocks.items())) or "none: dense"
    rows["bits"] = f"{held.bits.weight} / {held.bits.activation} / {held.bits.stream}" if held.bits else "not quantized"
    rows |= {name: "not stated" for name in STATED} | {name: str(value) for name, value in about.items()}
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items() if name != "licence")
    licence = f"license: {about['licence']}\n" if "licence" in about else ""
    return f"""---
library_name: privcirnet
tags: [privcirnet, block-circulant, homomorphic-encryption, image-classification]
{licence}---

# {held.model}

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

"""Networks of any kind, trained by the one training loop, and read and written as the scripts do, with a model card."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from privcirnet.api.settings import bars, configured, verb
from privcirnet.artifact.hub import HUB, hub_file
from privcirnet.artifact.records import Bits, Checkpoint, InputSpec, read_checkpoint, write_checkpoint, write_text
from privcirnet.config import FitConfig, RecipeConfig
from privcirnet.config.checks import check
from privcirnet.data.dataset import OwnImages, Pairs
from privcirnet.errors import RuleError, first_line, listed
from privcirnet.models import ENTRY_POINTS
from privcirnet.models.pretrained import PRETRAINED, pretrained
from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.agreement import agree
from privcirnet.nn.checks import check_finite, check_module, check_weights, logits_of_one
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.example import FACTS, FRESH, IMAGE, random_images
from privcirnet.nn.graph import evaluating
from privcirnet.passes.equalize import input_step_for
from privcirnet.passes.quantize import BITS
from privcirnet.runs.pictures import read_image
from privcirnet.train import loop
from privcirnet.train.checkpoint import rollback_on_failure
from privcirnet.train.distillation import teaching
from privcirnet.train.head import fit_head_
from privcirnet.train.network import CHOSEN, build, create, tensors_of, weighted_layers
from privcirnet.train.recalibration import are_norms_frozen, freeze_norms_
from privcirnet.train.record import EpochProgress, Step
from privcirnet.train.stages import CHECKPOINT, load_fitting_

COMMITTED = Path(__file__).parents[2] / "checkpoints"
"""The trained networks of a checkout."""
_OF_MAPS = "flip", "crop", "cutmix", "channels_last"
"""Settings of training that change the rows and columns of images."""
_MAP_AXES = 4
"""Axes of images (N, C, H, W)."""
_COMPARED = 8
"""Number of images on which a saved network is compared."""


@verb
def network(source: str | Path, *, size: int = 0, classes: Sequence[str] = ()) -> nn.Module:
    """Return a trained network: dense, circulant, with polynomials, or of 8 bits.

    Args:
        source: a checkpoint, or the run directory of ``train.py`` or :func:`save` that has one; ``hf-hub:OWNER/NAME``,
            fetched once by huggingface_hub; the name of a network in a checkout's folder ``checkpoints``, as
            ``mobilenetv2_cifar10`` or ``circulant/vit_cifar10``; or one of
            :data:`~privcirnet.models.pretrained.PRETRAINED`, as ``efficientnet_lite0``, whose weights are in a package.
        size: side of its images in pixels; 0: as it was trained.
        classes: names of other classes, which a dense network is to learn by :func:`fit`: for another number of them
            its last layer is a new one, which is fitted to the layers before it first. Its norms are frozen.

    Returns:
        The network, in evaluation mode. ``classes`` are their names by label; ``preprocess(picture)`` makes an image,
        (1, C, H, W), of a picture: the path or the bytes of a file.

    Raises:
        RuleError: there is none, it is damaged, does not say what its network reads, or takes no images of the size;
            or it is not dense, and cannot learn other classes.
    """
    check(isinstance(size, int) and size >= 0, "size must be a number of pixels", size, "use 160")
    named = not isinstance(classes, str) and len(classes) != 1
    check(named, "classes must be the names of several", repr(classes), 'use ["cat", "dog"]')
    checkpoint = _checkpoint_at(str(source))
    inputs = checkpoint.inputs
    if inputs is None:
        remedy = f"make it again: train.py evaluate={source} compact=rows8, with its data="
        raise RuleError("a checkpoint must say what its network reads", got=source, remedy=remedy)
    if size:
        inputs = replace(inputs, shape=(inputs.shape[0], size, size))
    fresh: tuple[str, ...] = ()
    if classes:
        inputs = replace(inputs, classes=tuple(classes))
        model = create(checkpoint.model, len(classes), inputs.shape, checkpoint.arguments).eval()
        fresh = load_fitting_(model, checkpoint)
        freeze_norms_(model)
    else:
        model = build(checkpoint, len(inputs.classes), inputs.shape)
    facts: dict[str, Any] = {"classes": inputs.classes, "preprocess": partial(_image, inputs)}
    facts["meta"] = getattr(model, "meta", {}) | {FACTS: replace(checkpoint, tensors={}, inputs=inputs), FRESH: fresh}
    vars(model).update(facts)
    return model


@verb
def save(  # noqa: PLR0913
    model: nn.Module,
    path: str | Path,
    *,
    name: str = "",
    images: Tensor | None = None,
    classes: Sequence[str] = (),
    arguments: Mapping[str, Any] | None = None,
    about: Mapping[str, object] | None = None,
) -> Path:
    """Write a network as the scripts and :func:`network` read it; it is read again before the file takes its place.

    Args:
        model: network before :func:`~privcirnet.fuse`, or quantized; left as it was. One of :func:`network` needs
            nothing else.
        path: a ``.safetensors`` file; or a folder, as ``recipe.init=`` takes it, with a model card beside.
        name: name of the architecture, as ``model.name=`` takes it: of this project, of timm, or ``torchvision/NAME``;
            empty for the one that it was read from or that timm made it by.
        images: some that it reads, (N, C, H, W), signals (N, C, L) or rows of a table (N, F).
        classes: their names by label; numbers if none are given.
        arguments: arguments that it was made with besides classes and channels.
        about: further rows of the model card, as ``{"top-1": "93.2 % of CIFAR-10's test images"}``.

    Returns:
        The file.

    Raises:
        RuleError: nobody knows the architecture, the name is that of another network, it is fused but not
            quantized, its weights are not finite, or the disk is full.

    >>> import tempfile, timm
    >>> model = timm.create_model("resnet10t", num_classes=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/mine.safetensors", images=torch.rand(1, 3, 32, 32), classes=["cat", "dog"]).name
    ...     network(f"{folder}/mine.safetensors").classes
    'mine.safetensors'
    ('cat', 'dog')
    """
    check_module(model)
    check_weights(model)
    checkpoint = _checkpoint(model, _described(model, name, images, classes, arguments), arguments or {})
    _check_read_again(model, checkpoint, images)
    folder = None if Path(path).suffix == ".safetensors" else Path(path)
    file = folder / CHECKPOINT if folder else Path(path)
    write_checkpoint(file, checkpoint)
    if folder:
        write_text(folder / "README.md", card(checkpoint, dict(about or {})))
    return file


def _checkpoint_at(source: str) -> Checkpoint:
    trained = pretrained(source)
    return trained.read() if trained else read_checkpoint(_found(source))


def _found(source: str) -> Path:
    if source.startswith(HUB):
        return hub_file(source, CHECKPOINT)
    committed = COMMITTED / f"{source}.safetensors"
    path = Path(source)
    if not path.exists() and committed.is_file():
        return committed
    if source and path.is_dir():
        return path / CHECKPOINT
    if not source or not path.exists():
        names = sorted(str(file.relative_to(COMMITTED).with_suffix("")) for file in COMMITTED.rglob("*.safetensors"))
        names += PRETRAINED
        close = difflib.get_close_matches(source, names, n=1) or names
        remedy = f"give a file, a run directory, {HUB}OWNER/NAME, or one of {listed(close)}"
        raise RuleError("a network must be one that is there", got=repr(source), remedy=remedy)
    return path


def _image(inputs: InputSpec, picture: str | Path | bytes) -> Tensor:
    return torch.from_numpy(read_image(inputs, picture))


def _described(
    model: nn.Module, name: str, images: Tensor | None, classes: Sequence[str], arguments: Mapping[str, Any] | None
) -> Checkpoint:
    """Return the facts of a network, without its tensors: those that it was read with, and the given ones."""
    checkpoint: Checkpoint | None = getattr(model, "meta", {}).get(FACTS)
    if not checkpoint:
        timms: Mapping[str, Any] = getattr(model, "pretrained_cfg", None) or {}
        checkpoint = Checkpoint({}, str(timms.get("architecture", "")), "train", {})
    if images is not None:
        logits = logits_of_one(model, images).shape[1]
        shape, step = tuple(images.shape[1:]), input_step_for(images)
        levels = round(images.max().item() * 2.0**-step)
        inputs = InputSpec(shape, step, levels, tuple(classes) or tuple(map(str, range(logits))))
        checkpoint = replace(checkpoint, inputs=inputs)
    elif (
        checkpoint.inputs and getattr(model, "meta", {}).get(IMAGE, checkpoint.inputs.shape) != checkpoint.inputs.shape
    ):
        checkpoint = replace(checkpoint, inputs=None)
    checkpoint = replace(
        checkpoint,
        model=name or checkpoint.model,
        arguments=dict(checkpoint.arguments if arguments is None else arguments),
    )
    if not checkpoint.model or checkpoint.inputs is None:
        got = "no name of its architecture" if not checkpoint.model else "no images"
        remedy = "give name=, as model.name= takes it, and images="
        raise RuleError("a saved network must say what it is and reads", got=got, remedy=remedy)
    return checkpoint


def _checkpoint(model: nn.Module, checkpoint: Checkpoint, arguments: Mapping[str, Any]) -> Checkpoint:
    """Return a network as a checkpoint: block sizes, bits and activations, unless given, are those of its modules."""
    blocks = {name: b for name, layer in weighted_layers(model).items() if (b := block_size_of(layer)) > 1}
    bits = getattr(model, "meta", {}).get(BITS)
    stated = bits or {"activation", CHOSEN} & arguments.keys()
    if checkpoint.model not in ENTRY_POINTS and isinstance(model, fx.GraphModule) and not stated:  # of polynomial_
        kinds = {"aespa": Aespa, "square": Square}
        activations = (
            name for name, kind in kinds.items() if any(isinstance(module, kind) for module in model.modules())
        )
        checkpoint = replace(checkpoint, arguments=checkpoint.arguments | {"activation": next(activations, "own")})
    stage = "qat" if bits else "finetune" if blocks else "train"
    facts = {"stage": stage, "block_sizes": blocks, "frozen": are_norms_frozen(model)}
    return replace(checkpoint, tensors=tensors_of(model), bits=Bits(*bits) if bits else None, **facts)


def _check_read_again(model: nn.Module, checkpoint: Checkpoint, samples: Tensor | None) -> None:
    """Raise unless the network of a checkpoint agrees with the saved one, also on some of the samples."""
    assert checkpoint.inputs is not None
    rule = "what is saved must be the network again when it is read"
    hint = 'arguments= that it was made with, {"activation": "aespa"} after polynomial_'
    remedy = f"give the name= and {hint}; save a fused network before fuse, or quantized"
    images = 0.45 + 0.1 * random_images(checkpoint.inputs.shape)  # of little contrast: more makes polynomials explode
    images = images if samples is None else torch.cat([images, samples[:_COMPARED].to(images)])
    like = next(model.parameters(), images)
    with evaluating(model), torch.no_grad():
        expected = model(images.to(like)).cpu()
        try:
            again = build(checkpoint, len(checkpoint.inputs.classes), checkpoint.inputs.shape)
            computed = again.to(like.dtype)(images.to(like.dtype))
        except (RuleError, RuntimeError) as error:
            got = error.got if isinstance(error, RuleError) else first_line(error)
            raise RuleError(rule, got=f"{checkpoint.model}: {got}", remedy=remedy) from error
    if not agree(computed, expected):
        raise RuleError(rule, got=f"other logits of {checkpoint.model}", remedy=remedy)


@verb
def fit(  # noqa: PLR0913
    model: nn.Module,
    data: Pairs,
    config: FitConfig | None = None,
    *,
    validation: Pairs | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    progress: bool = True,
    **settings: Any,
) -> list[dict[str, float]]:
    """Train a network in place: dense, circulant or quantized.

    Args:
        model: network on the device to train on; left in evaluation mode, or as it was if its training fails. Norms in
            evaluation mode whose parameters need no gradient are frozen: their statistics stay.
        data: (images (N, C, H, W) or (N, F), labels (N,)), which are shuffled and cut into batches, or a DataLoader,
            whose batches are taken as they come.
        config: settings of the training.
        validation: held-out data in the form of ``data``; the history then has its accuracy.
        teacher: network whose logits are soft labels, with weight ``distillation``; left as it was.
        seed: seed of the order of batches.
        progress: whether a bar is shown.
        settings: fields of ``config`` by name, as ``epochs=20``.

    Returns:
        Per epoch {"epoch", "loss" in nats, "top1" in percent of the validation, "learning_rate", "images_per_second",
        "seconds"}.

    Raises:
        RuleError: a setting is unknown or out of range, the images or labels do not fit the network, or weights, images
            or the loss are not finite.
    """
    check_module(model)
    recipe = RecipeConfig(**asdict(configured("fit", FitConfig, config, settings)))
    if teacher is None and settings.get("distillation"):
        raise RuleError("distillation needs a teacher", got="none", remedy="give teacher=, or leave distillation out")
    check_finite(model)
    images = OwnImages(data, validation, partial(_logits, model, teacher))
    for_maps = [name for name in _OF_MAPS if getattr(recipe, name)] if images.first.ndim < _MAP_AXES else []
    if for_maps:
        rule, remedy = "signals and tables have no rows and columns to change", "augment them in a DataLoader"
        raise RuleError(rule, got=listed(for_maps), remedy=f"leave it out, or {remedy}")
    bar = bars(progress)("fit (epochs)", recipe.epochs)
    with rollback_on_failure(model), evaluating(teacher) if teacher else nullcontext(), bar as advance:
        taught_by = teaching(teacher) if teacher else None
        suffix = {"top1": ""}

        def after_epoch(done: EpochProgress) -> None:
            if "top1" in (last := done.history[-1]):
                suffix["top1"] = f", top-1 {last['top1']:.1f} %"

        def after_step(step: Step) -> None:
            advance(f"loss {step.mean_loss:.3f}{suffix['top1']}", to=step.epochs)

        meta: dict[str, Any] = getattr(model, "meta", {})
        fit_head_(model, meta.get(FRESH, ()), images)
        history = loop.fit(model, images, recipe, seed, taught_by, after_epoch=after_epoch, after_step=after_step)
        meta.pop(FRESH, None)
        return history


def _logits(model: nn.Module, teacher: nn.Module | None, images: Tensor) -> Tensor:
    """Return a network's logits of the first image; raise unless its teacher has as many."""
    logits = logits_of_one(model, images)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        rule, remedy = "a network must have parameters to train", "call requires_grad_() on it, or on some layers"
        raise RuleError(rule, got="none that takes a gradient", remedy=remedy)
    if teacher is not None and (classes := logits_of_one(teacher, images).shape[1]) != logits.shape[1]:
        rule, got = "a teacher must have the network's classes", f"{classes} for {logits.shape[1]}"
        raise RuleError(rule, got=got, remedy="give one that was trained on the same classes")
    return logits


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

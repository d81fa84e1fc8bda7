"""Learned steps: while a network is trained, its steps are rounded from parameters.

Encrypted inference clips nothing. A finer step is at least as exact, but costs bits of the plain modulus. Hence values
are clipped to the range of the bits in training: the gradient of a step balances what is clipped against what is
rounded away (:func:`privcirnet.nn.functional.quantize.quantize_learned`). In evaluation and in the integer network
larger activations are kept.

The parameters serve only training. The steps in use are the quantizers' ``log_step``. The rules of
:mod:`privcirnet.nn.steps` settle them after every optimizer step. :func:`fix_steps_` leaves a network in the form of a
calibrated one.

Source: Trained Quantization Thresholds (Jain et al., MLSys 2020). Departures: activations are rounded at random, as the
protocol truncates; quantizers that feed the same sum share a parameter.
"""

import torch
from torch import fx, nn

from privcirnet.nn.quantizers import ActivationQuantizer, Quantizer, WeightQuantizer, quantizer_of
from privcirnet.nn.steps import activation_quantizer, groups_of, has_sign, settle_steps, weighted_modules


def learn_steps_(graph: fx.GraphModule) -> fx.GraphModule:
    """Return the same network, its steps learnable except that of its input. Build the optimizer afterwards.

    In training, activations are clipped to the range of their quantizer's bits; results of a square and inputs of a
    ReLU have no sign.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, calibrated.
    """
    for module in weighted_modules(graph):
        quantizer = quantizer_of(module)
        assert isinstance(quantizer, WeightQuantizer)
        highest = 2 ** (quantizer.bits - 1) - 1
        if highest:  # of one bit there is nothing to learn but the signs
            quantizer.learn(_parameter(quantizer), (-highest, highest))
    for group in groups_of(graph):
        if any(node.all_input_nodes[0].op == "placeholder" for node in group):
            continue
        shared = _parameter(activation_quantizer(graph, group[0]))
        for node in group:
            quantizer = activation_quantizer(graph, node)
            highest = 2 ** (quantizer.bits - 1) - 1
            limits = (-highest, highest) if has_sign(graph, node) else (0, 2**quantizer.bits - 1)
            quantizer.learn(shared, quantizer.ends if quantizer.clips else limits)
    return graph


def _parameter(quantizer: Quantizer) -> nn.Parameter:
    return nn.Parameter(torch.tensor(float(quantizer.log_step), device=quantizer.log_step.device))


def learned_steps(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that steps are rounded from, each once; none for a network whose steps are fixed."""
    unique = {id(quantizer.learned): quantizer.learned for quantizer in _learners(model)}
    return [parameter for parameter in unique.values() if parameter is not None]


@torch.no_grad()
def follow_learned_steps_(model: nn.Module) -> None:
    """Set the steps to the learned ones, if any, as far as nn.steps allows. Call it after each optimizer step.

    Raises:
        RuleError: a residual's branch became coarser than the stream that it is added to.
    """
    learners = _learners(model)
    if not learners:
        return
    rounded = torch.stack([q.learned for q in learners if q.learned is not None]).round().long()
    if torch.equal(rounded, torch.stack([q.log_step for q in learners])):
        return
    for quantizer, log_step in zip(learners, rounded.tolist(), strict=True):
        quantizer.log_step.fill_(log_step)
    assert isinstance(model, fx.GraphModule)
    first = next(module for module in model.modules() if isinstance(module, ActivationQuantizer))
    settle_steps(model, int(first.log_step))
    for quantizer in learners:  # a raised step must not drift further down
        if quantizer.learned is not None:
            quantizer.learned.clamp_(min=int(quantizer.log_step) - 0.5)


def fix_steps_(model: nn.Module) -> None:
    """End learning: the steps stay as they are, and their parameters are removed.

    Args:
        model: any network; one without learned steps is left as it is.
    """
    for quantizer in _learners(model):
        quantizer.learned = None


def _learners(model: nn.Module) -> list[Quantizer]:
    return [module for module in model.modules() if isinstance(module, Quantizer) and module.learned is not None]

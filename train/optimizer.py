"""AdamW with weight decay on weight matrices only."""

import torch
from torch import nn

from dualwave.train.config import OptimizerConfig

# Embedding tables: rows of rare tokens would only ever be decayed.
_UNDECAYED_MODULES = (nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
_UNDECAYED_WORDS = ("position", "embedding")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters of `model`.

    Matrices and convolution kernels are decayed. Norms, biases, embedding and position tables and
    scalars (such as the logit scale) are not.
    """
    undecayed = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, _UNDECAYED_MODULES)
        for parameter in module.parameters(recurse=False)
    }
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_table = any(word in name.rsplit(".", 1)[-1] for word in _UNDECAYED_WORDS)
        groups[parameter.ndim >= 2 and id(parameter) not in undecayed and not is_table].append(
            parameter
        )
    return torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": config.weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
    )

"""Kinds of layers."""

from __future__ import annotations

from torch import nn

__all__ = ["BATCH_NORMS", "CONVOLUTIONS", "DROPOUTS", "FIRST_LAYERS", "NORMS", "weight_of"]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
#: Layers whose output stands for the input, which has no gradient.
FIRST_LAYERS = (nn.Linear, nn.Embedding, nn.EmbeddingBag, *CONVOLUTIONS)
NORMS = (
    *BATCH_NORMS,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []),
)


def weight_of(module: nn.Module) -> nn.Parameter | None:
    """Return the weight of a module if it is one of its parameters.

    The attribute may be computed at each access, as with a parametrization of `spectral_norm`, which also changes its
    buffers in training mode.

    >>> weight_of(nn.Linear(3, 2)).shape
    torch.Size([2, 3])
    >>> weight_of(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)))
    """
    return dict(module.named_parameters(recurse=False)).get("weight")

"""The two losses of a dual-stream run: the saliency map's and the image-text contrastive one.

Both are written so that the *average over ranks* of what they give is the loss of one process that
holds all rows. That is what `DistributedDataParallel` does with gradients, so gradients are one
process's, too, also when ranks hold different numbers of rows.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from einops import rearrange

from dualwave.parallel.collectives import all_gather_with_grad, gather_row_counts


def saliency_loss(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy (mean over pixels) plus soft Dice, for each sample.

    Cross entropy alone is nearly satisfied by an empty map, since few pixels are salient; Dice
    looks at the overlap and does not mind how few they are. A sample without any salient pixel
    has a Dice part between 0 (empty prediction) and 1. Milletari et al., V-Net (arXiv
    1606.04797), with the unsquared denominator and 1 added on both sides.

    Args:
        logits: (B, H, W), any float type; computed in float32 at least.
        masks: (B, H, W) in {0, 1}, any type.

    Returns:
        (B,) float32 (float64 for float64 logits).
    """
    logits = _at_least_float32(logits)
    masks = masks.to(logits.dtype)
    cross_entropy = F.binary_cross_entropy_with_logits(logits, masks, reduction="none")
    probability = logits.sigmoid()
    overlap = (probability * masks).sum(dim=(1, 2))
    area = probability.sum(dim=(1, 2)) + masks.sum(dim=(1, 2))
    dice = 1 - (2 * overlap + 1) / (area + 1)
    return cross_entropy.mean(dim=(1, 2)) + dice


def contrastive_loss(
    image_embeds: torch.Tensor,
    text_embeds: torch.Tensor,
    logit_scale: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    caption_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """Symmetric softmax loss (CLIP, arXiv 2103.00020) over the rows of all ranks.

    Each rank compares its own images with all texts and its own texts with all images (features are
    gathered with gradient), and gives `world_size / all rows` times the sum over its own rows: the
    average over ranks is the loss of one process with all rows, and so is its gradient after
    `DistributedDataParallel`'s averaging.

    Two rows with the same caption are not negatives of each other: their mutual logits are left out
    of the softmax, so that each row keeps exactly one positive (its own pair).

    Args:
        image_embeds: (B, E) unit rows of this rank; B may differ between ranks.
        text_embeds: (B, E) unit rows.
        logit_scale: () factor of the cosine similarities (already exponentiated).
        group: the processes; None for this process alone.
        caption_ids: (B,) int64, equal for equal captions, on all ranks; None: all differ.

    Returns:
        () float32 (float64 for float64 features).
    """
    pairs = torch.cat([_at_least_float32(image_embeds), _at_least_float32(text_embeds)], dim=1)
    counts = gather_row_counts(pairs, group)
    # One collective for both streams: they have the same width.
    all_images, all_texts = all_gather_with_grad(pairs, group, counts).chunk(2, dim=1)
    images, texts = pairs.chunk(2, dim=1)
    scale = logit_scale.to(pairs.dtype)
    image_logits = scale * images @ all_texts.T
    text_logits = scale * texts @ all_images.T

    rank = 0 if group is None else dist.get_rank(group)
    first_row = sum(counts[:rank])
    own_pair = torch.arange(first_row, first_row + counts[rank], device=pairs.device)
    if caption_ids is not None:
        all_ids = all_gather_with_grad(caption_ids, group, counts)
        same_caption = rearrange(caption_ids, "own -> own 1") == all_ids
        same_caption[torch.arange(counts[rank], device=pairs.device), own_pair] = False
        image_logits = image_logits.masked_fill(same_caption, float("-inf"))
        text_logits = text_logits.masked_fill(same_caption, float("-inf"))

    own_sum = (
        F.cross_entropy(image_logits, own_pair, reduction="sum")
        + F.cross_entropy(text_logits, own_pair, reduction="sum")
    ) / 2
    return own_sum * (len(counts) / sum(counts))


def _at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()

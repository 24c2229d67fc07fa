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
    """Where, what shape, and how sure: three parts for each sample.

    - The cross entropy of a softmax over all pixels against the mask, spread evenly over its
      pixels: a map is ranked by it, and so is average precision. A sample without any salient
      pixel has none of this part.
    - A soft Dice loss, 1 - (2 |P M| + 1) / (|P| + |M| + 1), which does not mind how few pixels are
      salient. Milletari et al., V-Net (arXiv 1606.04797), with the unsquared denominator and 1
      added on both sides.
    - Ten times the binary cross entropy (mean over pixels), which makes the sigmoid a probability;
      ten because most pixels are easy and their mean is small.

    Args:
        logits: (B, H, W), any float type; computed in float32 at least.
        masks: (B, H, W) in {0, 1}, any type.

    Returns:
        (B,) float32 (float64 for float64 logits).
    """
    logits = rearrange(_at_least_float32(logits), "b h w -> b (h w)")
    masks = rearrange(masks, "b h w -> b (h w)").to(logits.dtype)
    salient = masks.sum(dim=1)
    location = -(logits.log_softmax(dim=1) * masks).sum(dim=1) / salient.clamp(min=1)
    probability = logits.sigmoid()
    overlap = (probability * masks).sum(dim=1)
    dice = 1 - (2 * overlap + 1) / (probability.sum(dim=1) + salient + 1)
    certainty = F.binary_cross_entropy_with_logits(logits, masks, reduction="none").mean(dim=1)
    return location + dice + 10 * certainty


def contrastive_loss(
    image_embeds: torch.Tensor,
    text_embeds: torch.Tensor,
    logit_scale: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    twin_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """Symmetric softmax loss (CLIP, arXiv 2103.00020) over the rows of all ranks.

    Each rank compares its own images with all texts and its own texts with all images (features are
    gathered with gradient), and gives `world_size / all rows` times the sum over its own rows: the
    average over ranks is the loss of one process with all rows, and so is its gradient after
    `DistributedDataParallel`'s averaging.

    Twins, such as two rows with the same caption, or two captions of the same region, are not
    negatives of each other: their mutual logits are left out of the softmax, so that each row keeps
    exactly one positive (its own pair).

    Args:
        image_embeds: (B, E) unit rows of this rank; B may differ between ranks.
        text_embeds: (B, E) unit rows.
        logit_scale: () factor of the cosine similarities (already exponentiated).
        group: the processes; None for this process alone.
        twin_ids: (B, K) int64, the same on all ranks; two rows that agree in any of the K columns
            are twins. None: there are none.

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
    if twin_ids is not None:
        all_ids = all_gather_with_grad(twin_ids, group, counts)
        are_twins = (rearrange(twin_ids, "own k -> own 1 k") == all_ids).any(dim=-1)
        are_twins[torch.arange(counts[rank], device=pairs.device), own_pair] = False
        image_logits = image_logits.masked_fill(are_twins, float("-inf"))
        text_logits = text_logits.masked_fill(are_twins, float("-inf"))

    own_sum = (
        F.cross_entropy(image_logits, own_pair, reduction="sum")
        + F.cross_entropy(text_logits, own_pair, reduction="sum")
    ) / 2
    return own_sum * (len(counts) / sum(counts))


def _at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()

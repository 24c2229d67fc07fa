"""Losses against the formulas written out with loops in float64 numpy, and on several ranks."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dualwave.train.losses import contrastive_loss, saliency_loss


def _reference_saliency(logits, mask):
    probability = 1 / (1 + np.exp(-logits))
    cross_entropy = -np.mean(mask * np.log(probability) + (1 - mask) * np.log(1 - probability))
    dice = 1 - (2 * np.sum(probability * mask) + 1) / (np.sum(probability) + np.sum(mask) + 1)
    location = 0.0
    if mask.any():
        softmax = np.exp(logits) / np.exp(logits).sum()
        location = -np.mean(np.log(softmax[mask]))
    return location + dice + 10 * cross_entropy


def test_saliency_loss_has_its_three_parts_for_each_sample():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 5, 7)) * 3
    masks = rng.random((4, 5, 7)) > 0.7
    masks[3] = False
    expected = [_reference_saliency(one, mask) for one, mask in zip(logits, masks, strict=True)]
    got = saliency_loss(torch.from_numpy(logits), torch.from_numpy(masks))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def test_saliency_loss_of_half_precision_logits_is_computed_in_float32():
    logits = torch.full((1, 200, 200), -20.0, dtype=torch.float16)
    loss = saliency_loss(logits, torch.zeros(1, 200, 200, dtype=torch.bool))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0, abs=1e-3)


def _reference_contrastive(images, texts, scale, captions):
    total = 0.0
    rows = range(len(images))
    for first, second in ((images, texts), (texts, images)):
        for i in rows:
            seen = [j for j in rows if j == i or captions[j] != captions[i]]
            logits = np.array([scale * first[i] @ second[j] for j in seen])
            total += np.log(np.exp(logits).sum()) - logits[seen.index(i)]
    return total / (2 * len(images))


@pytest.mark.parametrize("captions", [[0, 1, 2, 3, 4], [0, 1, 0, 0, 2], [7, 7, 7, 7, 7]])
def test_contrastive_loss_leaves_rows_with_the_same_caption_out(captions):
    rng = np.random.default_rng(1)
    images, texts = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in rng.normal(size=(2, 5, 6))
    )
    got = contrastive_loss(
        torch.from_numpy(images),
        torch.from_numpy(texts),
        torch.tensor(9.0),
        twin_ids=torch.tensor(captions)[:, None],
    )
    expected = _reference_contrastive(images, texts, 9.0, captions)
    assert got.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_rows_that_agree_in_any_column_are_twins():
    images, texts = torch.nn.functional.normalize(torch.randn(2, 4, 5, dtype=torch.float64), dim=2)
    scale = torch.tensor(9.0, dtype=torch.float64)
    by_caption_or_region = torch.tensor([[0, 5], [1, 6], [0, 7], [2, 6]])
    got = contrastive_loss(images, texts, scale, twin_ids=by_caption_or_region)
    # Rows 0 and 2 share the first column, rows 1 and 3 the second.
    expected = contrastive_loss(images, texts, scale, twin_ids=torch.tensor([[0], [1], [0], [1]]))
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert got < contrastive_loss(images, texts, scale)


def test_without_twin_ids_all_captions_differ():
    images, texts = torch.nn.functional.normalize(torch.randn(2, 4, 3), dim=-1)
    scale = torch.tensor(5.0)
    assert torch.equal(
        contrastive_loss(images, texts, scale),
        contrastive_loss(images, texts, scale, twin_ids=torch.arange(4)[:, None]),
    )


def _rank_loss_and_gradient(rank, counts, rendezvous, weight, images, texts, ids):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=len(counts)
    )
    own = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    loss, gradients = _loss_and_gradients(
        weight, images[own], texts[own], ids[own], dist.group.WORLD
    )
    averaged = torch.stack([loss, *gradients])
    dist.all_reduce(averaged)
    averaged /= len(counts)  # what DistributedDataParallel does with gradients
    reference, reference_gradients = _loss_and_gradients(weight, images, texts, ids, None)
    torch.testing.assert_close(
        averaged, torch.stack([reference, *reference_gradients]), rtol=1e-12, atol=1e-14
    )
    dist.destroy_process_group()


def _loss_and_gradients(weight, images, texts, ids, group):
    """The loss of a model with two weights in each tower and a scale; flat gradients."""
    parameters = [weight[i].clone().requires_grad_() for i in range(5)]
    normalize = torch.nn.functional.normalize
    image_embeds = normalize(images * parameters[0] + parameters[1], dim=1)
    text_embeds = normalize(texts * parameters[2] + parameters[3], dim=1)
    loss = contrastive_loss(image_embeds, text_embeds, parameters[4].exp(), group, ids)
    return loss.detach(), torch.autograd.grad(loss, parameters)


def test_ranks_with_different_numbers_of_rows_have_one_process_loss_and_gradient(tmp_path):
    counts = [3, 1, 2]
    generator = torch.Generator().manual_seed(2)
    images, texts = torch.randn(2, 6, 4, dtype=torch.float64, generator=generator)
    weight = torch.randn(5, dtype=torch.float64, generator=generator)
    # Rows 0 and 3 share a caption, rows 4 and 5 a region.
    ids = torch.tensor([[0, 1, 2, 0, 3, 4], [10, 11, 12, 13, 14, 14]]).T.contiguous()
    arguments = (counts, str(tmp_path / "rendezvous"), weight, images, texts, ids)
    context = mp.spawn(_rank_loss_and_gradient, arguments, nprocs=len(counts), join=False)
    deadline = time.monotonic() + 60
    # join comes back whenever some ranks have ended, and raises what a rank raised.
    while not context.join(timeout=5, grace_period=1):
        assert time.monotonic() < deadline, "the ranks wait for each other"

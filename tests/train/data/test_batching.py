import random

import numpy as np
import pytest

from dualwave.train.data import TokenBudgetBatchSampler

RANDOM = random.Random(0)
LENGTHS = [RANDOM.randint(3, 20) for _ in range(1013)]


def batches_of(sampler, epoch=0):
    sampler.set_epoch(epoch)
    return list(sampler)


def test_each_row_at_most_once_and_batches_full():
    batches = batches_of(TokenBudgetBatchSampler(LENGTHS, batch_size=32, seed=1))
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows) == 1013 - 1013 % 32
    assert {len(batch) for batch in batches} == {32}


@pytest.mark.parametrize("budget", [20, 100, 250])
def test_budget_holds_and_is_used(budget):
    sampler = TokenBudgetBatchSampler(LENGTHS, batch_size=32, token_budget=budget, seed=1)
    batches = batches_of(sampler)
    costs = [max(LENGTHS[row] for row in batch) * len(batch) for batch in batches]
    assert max(costs) <= budget
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows) > 1013 - 32
    # A batch is cut only where the next row, at most one token longer, would not fit; but for the
    # seam between the last rows and the first, where lengths may jump.
    early = [
        batch
        for batch in batches
        if len(batch) < 32 and (max(LENGTHS[i] for i in batch) + 1) * (len(batch) + 1) <= budget
    ]
    assert len(early) <= 1
    assert len(sampler) == len(batches)


def test_bucketing_saves_padding():
    sampler = TokenBudgetBatchSampler(LENGTHS, batch_size=32, seed=1)
    shares = [sampler.padding_share(batch) for batch in batches_of(sampler)]
    shuffled = np.random.default_rng(0).permutation(len(LENGTHS))[:960].reshape(-1, 32)
    unsorted = [sampler.padding_share(batch.tolist()) for batch in shuffled]
    assert np.mean(shares) < 0.1 < 0.3 < np.mean(unsorted)


def test_padding_share_by_hand():
    sampler = TokenBudgetBatchSampler([2, 4, 4, 0], batch_size=2)
    assert sampler.padding_share([0, 1]) == pytest.approx(2 / 8)
    assert sampler.padding_share([1, 2]) == 0
    assert sampler.padding_share([3]) == 0


def test_epochs_differ_and_repeat():
    first = TokenBudgetBatchSampler(LENGTHS, batch_size=32, token_budget=300, seed=1)
    second = TokenBudgetBatchSampler(LENGTHS, batch_size=32, token_budget=300, seed=1)
    assert batches_of(first, 0) == batches_of(second, 0)
    assert batches_of(first, 1) != batches_of(first, 0)
    assert batches_of(first, 1) == batches_of(second, 1)
    other_seed = TokenBudgetBatchSampler(LENGTHS, batch_size=32, token_budget=300, seed=2)
    assert batches_of(other_seed) != batches_of(first)


def test_batches_are_shuffled_by_length():
    sampler = TokenBudgetBatchSampler(LENGTHS, batch_size=32, seed=1)
    longest = [max(LENGTHS[row] for row in batch) for batch in batches_of(sampler)]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.5


def test_every_row_is_dropped_about_as_often():
    sampler = TokenBudgetBatchSampler(LENGTHS, batch_size=300, seed=1)  # 113 rows are dropped
    seen = np.zeros(len(LENGTHS))
    for epoch in range(300):
        for batch in batches_of(sampler, epoch):
            seen[batch] += 1
    lengths = np.array(LENGTHS)
    by_length = [seen[lengths == length].mean() / 300 for length in (3, 4, 11, 19, 20)]
    assert by_length == pytest.approx([900 / 1013] * 5, abs=0.05)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_share_the_same_global_batches(world_size):
    options = {"batch_size": 10, "token_budget": 90, "seed": 5}
    whole = batches_of(TokenBudgetBatchSampler(LENGTHS, **options))
    parts = [
        batches_of(TokenBudgetBatchSampler(LENGTHS, rank=rank, world_size=world_size, **options))
        for rank in range(world_size)
    ]
    for number, batch in enumerate(whole):
        mine = [part[number] for part in parts]
        assert min(map(len, mine)) >= 1
        woven = [mine[i % world_size][i // world_size] for i in range(len(batch))]
        assert woven == batch


@pytest.mark.parametrize("stop", [1, 7, None])
def test_resuming_gives_the_rest(stop):
    def fresh():
        return TokenBudgetBatchSampler(LENGTHS, batch_size=32, token_budget=300, seed=1)

    whole = batches_of(fresh(), 2)
    sampler = fresh()
    sampler.set_epoch(2)
    stop = len(whole) if stop is None else stop
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(stop)] == whole[:stop]
    resumed = fresh()
    resumed.load_state_dict(sampler.state_dict())
    assert resumed.state_dict()["epoch"] == 2
    assert list(resumed) == whole[stop:]


def test_resuming_with_other_data_is_refused():
    state = TokenBudgetBatchSampler(LENGTHS, batch_size=32, seed=1).state_dict()
    with pytest.raises(ValueError, match="rows 1013, but rows is 1012"):
        TokenBudgetBatchSampler(LENGTHS[1:], batch_size=32, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="batch_size 32, but batch_size is 16"):
        TokenBudgetBatchSampler(LENGTHS, batch_size=16, seed=1).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, "5 rows can't be made from 4"),
        ({"batch_size": 0}, "0 rows"),
        ({"batch_size": 2, "world_size": 3}, "shared by 3"),
        ({"batch_size": 2, "token_budget": 8}, "row 2 has 9 tokens"),
        ({"batch_size": 4, "token_budget": 17, "world_size": 2}, "need 18"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank 2 is not one of 2"),
    ],
)
def test_what_makes_no_batch_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler([3, 4, 9, 5], **options)

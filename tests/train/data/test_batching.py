import random
from collections import Counter
from itertools import groupby

import numpy as np
import pytest

from dualwave.train.data import TokenBudgetBatchSampler

RANDOM = random.Random(0)
LENGTHS = [RANDOM.randint(3, 20) for _ in range(1013)]


# Groups of 1 to 5 rows, whose rows are apart in the data.
GROUPS = [f"g{i}" for i in range(500) for _ in range(RANDOM.randint(1, 5))][: len(LENGTHS)]
RANDOM.shuffle(GROUPS)
SIZES = Counter(GROUPS)


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


def runs(batch, groups):
    """The groups of a batch, each with the number of its rows that are adjacent."""
    return [(group, len(list(rows))) for group, rows in groupby(batch, lambda row: groups[row])]


@pytest.mark.parametrize("budget", [None, 120, 400])
def test_groups_come_whole_and_adjacent(budget):
    sampler = TokenBudgetBatchSampler(
        LENGTHS, groups=GROUPS, batch_size=32, token_budget=budget, seed=1
    )
    for epoch in range(3):
        batches = batches_of(sampler, epoch)
        rows = [row for batch in batches for row in batch]
        assert len(set(rows)) == len(rows) > len(LENGTHS) - 32
        for batch in batches:
            longest = max(LENGTHS[row] for row in batch)
            assert len(batch) <= 32
            assert budget is None or longest * len(batch) <= budget
            assert all(SIZES[group] == count for group, count in runs(batch, GROUPS))
        if budget is None:
            assert min(map(len, batches)) > 32 - max(SIZES.values())
    assert batches_of(sampler, 1) != batches_of(sampler, 0)


def test_one_group_a_row_is_the_same_as_no_groups():
    options = {"batch_size": 32, "token_budget": 300, "seed": 1}
    alone = TokenBudgetBatchSampler(LENGTHS, groups=range(len(LENGTHS)), **options)
    none = TokenBudgetBatchSampler(LENGTHS, **options)
    assert batches_of(alone, 1) == batches_of(none, 1)


def test_every_group_is_dropped_about_as_often():
    sampler = TokenBudgetBatchSampler(LENGTHS, groups=GROUPS, batch_size=300, seed=1)
    seen = np.zeros(len(LENGTHS))
    for epoch in range(300):
        for batch in batches_of(sampler, epoch):
            seen[batch] += 1
    lengths = np.array(LENGTHS)
    shares = [seen[lengths == length].mean() / 300 for length in (3, 11, 20)]
    assert shares == pytest.approx([np.mean(shares)] * 3, abs=0.05)
    assert seen.min() > 200


@pytest.mark.parametrize("budget", [None, 44])
def test_a_group_larger_than_a_batch_is_spread(budget):
    lengths = [4] * 60
    groups = [0] * 25 + [1] * 10 + [2] * 3 + list(range(3, 25))
    sampler = TokenBudgetBatchSampler(
        lengths, groups=groups, batch_size=12, token_budget=budget, world_size=2, seed=1
    )
    whole = TokenBudgetBatchSampler(
        lengths, groups=groups, batch_size=12, token_budget=budget, seed=1
    )
    seen = set()
    for epoch in range(20):
        batches = batches_of(whole, epoch)
        assert sum(map(len, batches)) == len({row for batch in batches for row in batch}) > 60 - 12
        assert sampler.padding_share([0]) == 0
        assert [len(part) for part in batches_of(sampler, epoch)] == [
            (len(batch) + 1) // 2 for batch in batches
        ]
        for batch in batches:
            seen.update(batch)
            assert len(batch) <= (12 if budget is None else 11)
            for group, count in runs(batch, groups):
                assert group == 0 or count == groups.count(group)
    assert len(seen) == 60


def test_ranks_share_the_same_batches_of_groups():
    options = {"groups": GROUPS, "batch_size": 16, "token_budget": 220, "seed": 5}
    whole = batches_of(TokenBudgetBatchSampler(LENGTHS, **options))
    parts = [
        batches_of(TokenBudgetBatchSampler(LENGTHS, rank=rank, world_size=4, **options))
        for rank in range(4)
    ]
    for number, batch in enumerate(whole):
        assert [batch[rank::4] for rank in range(4)] == [part[number] for part in parts]
        assert len(batch) >= 4


def test_resuming_with_groups_gives_the_rest():
    def fresh(groups=GROUPS):
        return TokenBudgetBatchSampler(
            LENGTHS, groups=groups, batch_size=32, token_budget=300, seed=1
        )

    whole = batches_of(fresh(), 2)
    sampler = fresh()
    sampler.set_epoch(2)
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(5)] == whole[:5]
    resumed = fresh()
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == whole[5:]
    with pytest.raises(ValueError, match=f"groups {len(SIZES)}, but groups is None"):
        fresh(groups=None).load_state_dict(sampler.state_dict())
    # A state from before there were groups goes on without them.
    old = {name: value for name, value in fresh(None).state_dict().items() if name != "groups"}
    fresh(None).load_state_dict(old)


def test_groups_that_do_not_fit_the_rows_or_ranks_are_refused():
    with pytest.raises(ValueError, match="4 rows, but 3 groups"):
        TokenBudgetBatchSampler([3, 4, 9, 5], groups=[1, 1, 2], batch_size=2)
    with pytest.raises(ValueError, match=r"up to 3 rows.*only 1 row.*too few for 2 processes"):
        TokenBudgetBatchSampler([3] * 6, groups=[0, 0, 0, 1, 1, 1], batch_size=3, world_size=2)
    TokenBudgetBatchSampler([3] * 6, groups=[0, 0, 0, 1, 1, 1], batch_size=4, world_size=2)

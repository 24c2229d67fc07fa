"""Several sequences in one row: reading where they lie, and refusing what means nothing."""

from itertools import pairwise

from torch import Tensor

from dualwave.kernels.attention.plans import Packing


def read_packing(
    cu_seqlens: tuple[Tensor, Tensor],
    max_seqlens: tuple[int | None, int | None],
    offsets: tuple[int, int] | None,
    rows: tuple[int, int],
    always_reads: bool,
) -> Packing:
    """The packing with all lengths; each pair is of queries and of keys.

    Args:
        cu_seqlens: the marks.
        max_seqlens: lengths of the longest sequences; missing ones are found from the marks.
        offsets: positions of the first rows, if positions are absolute.
        rows: of the tensors.
        always_reads: read, and so check, also marks on a GPU whose lengths are given.

    Raises:
        ValueError: marks that were read do not rise from 0 or end after the rows, or a sequence is
            longer than the given length.
    """
    lengths = []
    for side in (0, 1):
        marks, given = cu_seqlens[side], max_seqlens[side]
        if given is not None and marks.device.type != "cpu" and not always_reads:
            lengths.append(given)
            continue
        name = "qk"[side]
        _check_marks(f"cu_seqlens_{name}", marks.tolist(), offsets is None, rows[side])
        places = places_in_rows(marks, offsets[side] if offsets else 0, rows[side])
        longest = max((end - begin for begin, end in pairwise(places)), default=0)
        if given is not None and given < longest:
            raise ValueError(
                f"max_seqlen_{name} is {given}, but the longest sequence has {longest} rows."
            )
        lengths.append(longest if given is None else given)
    return Packing(*cu_seqlens, *lengths)


def places_in_rows(marks: Tensor, offset: int, rows: int) -> list[int]:
    """The marks as places in a tensor that may be a part of the packed row, from 0 to ``rows``."""
    return [min(max(mark - offset, 0), rows) for mark in marks.tolist()]


def _check_marks(name: str, marks: list[int], must_end: bool, rows: int) -> None:
    if marks[0] != 0:
        raise ValueError(f"{name} must rise from 0, but it starts with {marks[0]}.")
    for place, (mark, following) in enumerate(pairwise(marks)):
        if following < mark:
            raise ValueError(
                f"{name} must rise, but it falls from {mark} to {following} at {place + 1}."
            )
    if must_end and marks[-1] > rows:
        raise ValueError(
            f"{name} ends at {marks[-1]}, but there are only {rows} rows: give q_offset and "
            "k_offset if they are a part of the packed row."
        )

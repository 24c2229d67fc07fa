"""Tiles of rows of one head, and where a program's sequence and keys lie.

A head size is padded to the next multiple of 16 and split into powers of two, the largest first:
100 is padded to 112 = 64 + 32 + 16. Rows of a head are a tuple with one tile for each piece.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import is_of_16_bits, offset, product, tile_offset


@triton.constexpr_function
def piece_count(SIZE):
    """How many pieces a head size is split into."""
    return bin((SIZE + 15) // 16).count("1")


@triton.constexpr_function
def piece_start(SIZE, index):
    """The first column of a piece."""
    padded = (SIZE + 15) // 16 * 16
    left = padded
    for _ in range(index):
        left -= 1 << (left.bit_length() - 1)
    return padded - left


@triton.constexpr_function
def piece_size(SIZE, index):
    """How many columns a piece has."""
    left = (SIZE + 15) // 16 * 16
    for _ in range(index):
        left -= 1 << (left.bit_length() - 1)
    return 1 << (left.bit_length() - 1)


@triton.jit
def rows_of_head(source, batch, head, batch_stride, head_stride, USES_DESCRIPTORS: tl.constexpr):
    """Where `load_rows` finds one head of ``source``, a pointer or a tensor descriptor.

    A descriptor has the dimensions batch, row, and the heads' columns in one.
    """
    if USES_DESCRIPTORS:
        return source, batch, head * head_stride
    else:
        return (source + offset(batch, batch_stride) + offset(head, head_stride),)


@triton.jit
def load_rows(
    source,
    first,
    local,
    inside,
    row_stride,
    column_stride,
    SIZE: tl.constexpr,
    OFFSETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Rows of a head as operands of products, 0 where ``inside`` is False.

    Args:
        source: from `rows_of_head`.
        first: place of the tile's first row.
        local: places of the rows in the tile, (ROWS,).
        inside: (ROWS,); a descriptor finds out by itself, so it must mean the tensor's own rows.
        row_stride: from a row to the next.
        column_stride: from a column to the next.
        SIZE: of the head.
        OFFSETS: what is known of strides, see `dualwave.kernels.attention.planning`.
        PRECISION: of the products; operands of more than 16 bits are float32, those of the
            interpreter as well.
    """
    if len(source) == 3:
        tile = source[0].load([source[1], first, source[2]])
        tiles = (_as_operand(tl.reshape(tile, (local.shape[0], SIZE)), PRECISION),)
    else:
        base = source[0] + offset(first, row_stride)
        row_offsets = tile_offset(local, row_stride, OFFSETS == "wide")
        if OFFSETS == "aligned":
            base = tl.multiple_of(base, 16)
            row_offsets = tl.multiple_of(row_offsets, 8)
        tiles = ()
        for index in tl.static_range(piece_count(SIZE)):
            columns = piece_start(SIZE, index) + tl.arange(0, piece_size(SIZE, index))
            column_offsets = tile_offset(columns, column_stride, OFFSETS == "wide")
            offsets = row_offsets[:, None] + column_offsets[None, :]
            mask = _existing(inside, columns, SIZE, index)
            tile = tl.load(base + offsets, mask=mask, other=0.0)
            tiles = tiles + (_as_operand(tile, PRECISION),)
    return tiles


@triton.constexpr_function
def _is_full(SIZE, index):
    return SIZE % 16 == 0 or index < piece_count(SIZE) - 1


@triton.jit
def _existing(inside, columns, SIZE: tl.constexpr, index: tl.constexpr):
    """Which elements of a piece are there; only the last piece may be padded."""
    if _is_full(SIZE, index):
        return inside[:, None]
    else:
        return inside[:, None] & (columns < SIZE)[None, :]


@triton.jit
def _as_operand(tile, PRECISION: tl.constexpr):
    """As early as possible, since a float32 grad_out takes twice the registers."""
    if PRECISION == "bf16":
        return tile.to(tl.bfloat16)
    elif PRECISION == "fp16":
        return tile.to(tl.float16)
    else:
        return tile.to(tl.float32)


@triton.jit
def store_rows(
    base, tiles, first, local, inside, row_stride, SIZE: tl.constexpr, OFFSETS: tl.constexpr
):
    """Write rows of a head whose columns are adjacent, in the dtype of ``base``."""
    base += offset(first, row_stride)
    row_offsets = tile_offset(local, row_stride, OFFSETS == "wide")
    if OFFSETS == "aligned":
        base = tl.multiple_of(base, 16)
        row_offsets = tl.multiple_of(row_offsets, 8)
    for index in tl.static_range(piece_count(SIZE)):
        columns = piece_start(SIZE, index) + tl.arange(0, piece_size(SIZE, index))
        pointers = base + (row_offsets[:, None] + columns[None, :])
        mask = _existing(inside, columns, SIZE, index)
        tl.store(pointers, tiles[index].to(base.dtype.element_ty), mask=mask)


@triton.jit
def zero_rows(ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Float32 accumulators for rows of a head."""
    tiles = ()
    for index in tl.static_range(piece_count(SIZE)):
        tiles = tiles + (tl.zeros((ROWS, piece_size(SIZE, index)), tl.float32),)
    return tiles


@triton.jit
def scale_rows(tiles, factors):
    """Each row times its factor, (ROWS, 1) or a number."""
    scaled = ()
    for index in tl.static_range(len(tiles)):
        scaled = scaled + (tiles[index] * factors,)
    return scaled


@triton.jit
def rows_by_rows(left, right, PRECISION: tl.constexpr):
    """Products of each row with each row: (LEFT, SIZE) and (RIGHT, SIZE) to (LEFT, RIGHT)."""
    total = product(left[0], tl.trans(right[0]), PRECISION)
    for index in tl.static_range(1, len(left)):
        total += product(left[index], tl.trans(right[index]), PRECISION)
    return total


@triton.jit
def add_mixed_rows(sums, weights, rows, PRECISION: tl.constexpr):
    """Sums plus rows mixed by weights: (OUT, SIZE) + (OUT, ROWS) @ (ROWS, SIZE)."""
    if is_of_16_bits(PRECISION):
        weights = weights.to(rows[0].dtype)
    added = ()
    for index in tl.static_range(len(sums)):
        added = added + (sums[index] + product(weights, rows[index], PRECISION),)
    return added


@triton.jit
def sequence_bounds(
    sequence,
    cu_seqlens_q,
    cu_seqlens_k,
    queries,
    keys,
    q_offset,
    k_offset,
    IS_PACKED: tl.constexpr,
    IS_ABSOLUTE: tl.constexpr,
):
    """Where a sequence lies in the tensors: first query, queries, first key, keys, and the shift.

    Key j of the sequence is as far ahead of its query i as ``j - i - shift``.
    """
    q_begin = sequence * 0  # a value and not a constant, whichever way the branch goes
    k_begin = q_begin
    q_length, k_length = queries, keys
    if IS_PACKED:
        q_begin = _place_in_rows(cu_seqlens_q + sequence, q_offset, queries)
        q_length = _place_in_rows(cu_seqlens_q + sequence + 1, q_offset, queries) - q_begin
        k_begin = _place_in_rows(cu_seqlens_k + sequence, k_offset, keys)
        k_length = _place_in_rows(cu_seqlens_k + sequence + 1, k_offset, keys) - k_begin
    shift = k_length - q_length
    if IS_ABSOLUTE:
        shift = (q_offset + q_begin) - (k_offset + k_begin)
    return q_begin, q_length, k_begin, k_length, shift


@triton.jit
def _place_in_rows(mark, row_offset, rows):
    """Marks and offsets may take 64 bits, places in the tensor have as many as ``rows``."""
    place = tl.load(mark).to(tl.int64) - row_offset
    return tl.minimum(tl.maximum(place, 0), rows).to(rows.dtype)


@triton.jit
def visible_pairs(
    i, j, q_length, k_length, shift, left, right, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr
):
    """Whether each query of ``i`` sees each key of ``j``; i and j broadcast, one is a column."""
    visible = (i < q_length) & (j < k_length)
    ahead = j - i - shift
    if HAS_LEFT:
        visible = visible & (ahead >= -left)
    if HAS_RIGHT:
        visible = visible & (ahead <= right)
    return visible

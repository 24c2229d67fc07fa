"""The transforms of rows by factors, without the filter between them.

Where a row and its gradient do not fit into registers together, they are transformed by these
kernels before and after the filter, which reads and writes whole spectra then.
"""

import triton
import triton.language as tl

from dualwave.kernels.spectral.triton_kernels.rows_tiles import (
    load_bins,
    load_spectrum,
    store_bins,
    store_rows,
)


@triton.jit
def rows_transform(
    source_real_ptr,
    source_imag_ptr,
    result_real_ptr,
    result_imag_ptr,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    rows,
    normalization,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    INVERSE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Samples of the rows of (B * C, M, W) to bins, or back if INVERSE."""
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = place < rows
    if INVERSE:
        real, imag = load_bins(
            source_real_ptr,
            source_imag_ptr,
            place,
            is_row,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
        )
        store_rows(
            real,
            imag,
            result_real_ptr,
            result_imag_ptr,
            place,
            is_row,
            first_ptr,
            twiddle_ptr,
            second_ptr,
            normalization,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
            SECOND_BLOCK,
            ROWS,
            True,
            PRECISION,
        )
    else:
        real, imag = load_spectrum(
            source_real_ptr,
            source_imag_ptr,
            place,
            is_row,
            first_ptr,
            twiddle_ptr,
            second_ptr,
            normalization,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
            SECOND_BLOCK,
            ROWS,
            True,
            PRECISION,
        )
        store_bins(
            real,
            imag,
            result_real_ptr,
            result_imag_ptr,
            place,
            is_row,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
        )

"""The transform of lines of any length by its definition, tile by tile.

Serves lengths that are no product of two factors of at most 64. A line is a column of x (real, its
neighbours along w or channels) or a row of a column transform (complex, planar). One pass over
half the table, cos and sin of 2 pi n k / N for k = 0 .. N // 2, gives the bins k and N - k, since
the two differ in the sign of the sine only.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset, product
from dualwave.kernels.spectral.triton_kernels.columns import line_offsets, lines_of_program
from dualwave.kernels.spectral.triton_kernels.factored_transform import scale_lines


@triton.jit
def load_direct_table(table_ptr, bins, samples, SIZE: tl.constexpr):
    """Cosines and sines of a (2, SIZE // 2 + 1, SIZE) table; 0 outside it.

    ``bins`` and ``samples`` broadcast against each other to the wanted tile.
    """
    HALF: tl.constexpr = SIZE // 2 + 1
    places = table_ptr + bins * SIZE + samples
    mask = (bins < HALF) & (samples < SIZE)
    cosine = tl.load(places, mask=mask, other=0.0)
    return cosine, tl.load(places + HALF * SIZE, mask=mask, other=0.0)


@triton.jit
def scale_tile(real, imag, LINES: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """A tile [channels, lines, along] as [lines, along], scaled line by line.

    Returns:
        the scaled tile, and what its lines are multiplied by to undo it, [lines, 1].
    """
    real, imag, unscale = scale_lines(
        tl.reshape(real, [1, LINES, BLOCK]), tl.reshape(imag, [1, LINES, BLOCK]), PRECISION
    )
    real, imag = tl.reshape(real, [LINES, BLOCK]), tl.reshape(imag, [LINES, BLOCK])
    return real, imag, tl.reshape(unscale, [LINES, 1])


@triton.jit
def store_tile(values, ptr, places, mask):
    """Store a tile [lines, along] at ``places`` [channels, lines, along]."""
    tl.store(ptr + places, tl.reshape(values, places.shape).to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def direct_forward(
    source_real_ptr,
    source_imag_ptr,
    result_real_ptr,
    result_imag_ptr,
    table_ptr,
    channels,
    lines,
    source_stride_b,
    source_stride_c,
    source_stride_line,
    source_stride_along,
    result_stride_b,
    result_stride_c,
    result_stride_line,
    result_stride_along,
    normalization,
    SIZE: tl.constexpr,
    IS_REAL: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_LINES: tl.constexpr,
    BLOCK_BINS: tl.constexpr,
    BLOCK_SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Samples to bins: all SIZE of them for complex lines, 0 .. SIZE // 2 for real ones."""
    HALF: tl.constexpr = SIZE // 2 + 1
    LINES: tl.constexpr = BLOCK_C * BLOCK_LINES
    PARTS: tl.constexpr = (HALF + BLOCK_BINS - 1) // BLOCK_BINS
    batch, channel, line, part = lines_of_program(channels, lines, PARTS, BLOCK_C, BLOCK_LINES)
    # [channels, lines, along]
    is_line = ((channel < channels)[:, None] & (line < lines)[None, :])[:, :, None]
    begin = line_offsets(
        batch, channel, line, source_stride_b, source_stride_c, source_stride_line
    )[:, :, None]
    bin = part * BLOCK_BINS + tl.arange(0, BLOCK_BINS)

    # [lines, bins]: sums of the real and the imaginary part times cosines and times sines
    real_cosine = tl.zeros([LINES, BLOCK_BINS], tl.float32)
    real_sine = tl.zeros([LINES, BLOCK_BINS], tl.float32)
    imag_cosine = tl.zeros([LINES, BLOCK_BINS], tl.float32)
    imag_sine = tl.zeros([LINES, BLOCK_BINS], tl.float32)
    for start in range(0, SIZE, BLOCK_SAMPLES):
        sample = start + tl.arange(0, BLOCK_SAMPLES)
        places = begin + offset(sample, source_stride_along)[None, None, :]
        mask = is_line & (sample < SIZE)[None, None, :]
        real = tl.load(source_real_ptr + places, mask=mask, other=0.0).to(tl.float32)
        imag = real
        if not IS_REAL:
            imag = tl.load(source_imag_ptr + places, mask=mask, other=0.0)
        real, imag, unscale = scale_tile(real, imag, LINES, BLOCK_SAMPLES, PRECISION)
        # [samples, bins]
        cosine, sine = load_direct_table(table_ptr, bin[None, :], sample[:, None], SIZE)
        real_cosine += product(real, cosine, PRECISION, False, True) * unscale
        real_sine += product(real, sine, PRECISION, False, True) * unscale
        if not IS_REAL:
            imag_cosine += product(imag, cosine, PRECISION, False, True) * unscale
            imag_sine += product(imag, sine, PRECISION, False, True) * unscale

    begin = line_offsets(
        batch, channel, line, result_stride_b, result_stride_c, result_stride_line
    )[:, :, None]
    places = begin + offset(bin, result_stride_along)[None, None, :]
    mask = is_line & (bin < HALF)[None, None, :]
    real, imag = real_cosine + imag_sine, imag_cosine - real_sine
    store_tile(real * normalization, result_real_ptr, places, mask)
    store_tile(imag * normalization, result_imag_ptr, places, mask)
    if not IS_REAL:
        # Bins 0 and SIZE / 2 are their own mirror images.
        places = begin + offset(SIZE - bin, result_stride_along)[None, None, :]
        mask = is_line & ((bin > 0) & (2 * bin < SIZE))[None, None, :]
        real, imag = real_cosine - imag_sine, imag_cosine + real_sine
        store_tile(real * normalization, result_real_ptr, places, mask)
        store_tile(imag * normalization, result_imag_ptr, places, mask)


@triton.jit
def direct_inverse(
    source_real_ptr,
    source_imag_ptr,
    result_real_ptr,
    result_imag_ptr,
    table_ptr,
    channels,
    lines,
    source_stride_b,
    source_stride_c,
    source_stride_line,
    source_stride_along,
    result_stride_b,
    result_stride_c,
    result_stride_line,
    result_stride_along,
    normalization,
    SIZE: tl.constexpr,
    IS_REAL: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_LINES: tl.constexpr,
    BLOCK_BINS: tl.constexpr,
    BLOCK_SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Bins to samples: complex ones from all SIZE bins, real ones from the bins 0 .. SIZE // 2."""
    HALF: tl.constexpr = SIZE // 2 + 1
    LINES: tl.constexpr = BLOCK_C * BLOCK_LINES
    PARTS: tl.constexpr = (SIZE + BLOCK_SAMPLES - 1) // BLOCK_SAMPLES
    batch, channel, line, part = lines_of_program(channels, lines, PARTS, BLOCK_C, BLOCK_LINES)
    # [channels, lines, along]
    is_line = ((channel < channels)[:, None] & (line < lines)[None, :])[:, :, None]
    begin = line_offsets(
        batch, channel, line, source_stride_b, source_stride_c, source_stride_line
    )[:, :, None]
    sample = part * BLOCK_SAMPLES + tl.arange(0, BLOCK_SAMPLES)

    # [lines, samples]
    total_real = tl.zeros([LINES, BLOCK_SAMPLES], tl.float32)
    total_imag = tl.zeros([LINES, BLOCK_SAMPLES], tl.float32)
    for start in range(0, HALF, BLOCK_BINS):
        bin = start + tl.arange(0, BLOCK_BINS)
        # [bins, samples]
        cosine, sine = load_direct_table(table_ptr, bin[:, None], sample[None, :], SIZE)
        places = begin + offset(bin, source_stride_along)[None, None, :]
        mask = is_line & (bin < HALF)[None, None, :]
        real = tl.load(source_real_ptr + places, mask=mask, other=0.0)
        imag = tl.load(source_imag_ptr + places, mask=mask, other=0.0)
        has_mirror = ((bin > 0) & (2 * bin < SIZE))[None, None, :]
        if IS_REAL:
            # A mirror image is the bin's complex conjugate.
            mirror_real = tl.where(has_mirror, real, 0.0)
            mirror_imag = tl.where(has_mirror, -imag, 0.0)
        else:
            places = begin + offset(SIZE - bin, source_stride_along)[None, None, :]
            mask = is_line & has_mirror
            mirror_real = tl.load(source_real_ptr + places, mask=mask, other=0.0)
            mirror_imag = tl.load(source_imag_ptr + places, mask=mask, other=0.0)
        # [lines, bins]
        even, odd, unscale = scale_tile(
            real + mirror_real, imag - mirror_imag, LINES, BLOCK_BINS, PRECISION
        )
        samples = product(even, cosine, PRECISION, False, True) - product(
            odd, sine, PRECISION, False, True
        )
        total_real += samples * unscale
        if not IS_REAL:
            even, odd, unscale = scale_tile(
                imag + mirror_imag, real - mirror_real, LINES, BLOCK_BINS, PRECISION
            )
            samples = product(even, cosine, PRECISION, False, True) + product(
                odd, sine, PRECISION, False, True
            )
            total_imag += samples * unscale

    begin = line_offsets(
        batch, channel, line, result_stride_b, result_stride_c, result_stride_line
    )[:, :, None]
    places = begin + offset(sample, result_stride_along)[None, None, :]
    mask = is_line & (sample < SIZE)[None, None, :]
    store_tile(total_real * normalization, result_real_ptr, places, mask)
    if not IS_REAL:
        store_tile(total_imag * normalization, result_imag_ptr, places, mask)

"""From row numbers to the tensors of a batch; prepared rows stay in memory when they are few."""

import hashlib
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from einops import rearrange
from PIL import Image

from dualwave.train.data import RowSource

LARGEST_CACHE = 1 << 30
"""Prepared rows are kept when all of them together take at most this many bytes."""

_CAPTIONS_AT_A_TIME = 10_000


@dataclass(frozen=True)
class Batch:
    """Rows as the model takes them.

    Attributes:
        pixel_values: (U, 3, S, S) float32, normalised; each picture once.
        image_index: (B,) int64, the picture of each row.
        masks: (B, S, S) bool, True where the caption's object is.
        input_ids: (B, L) int64.
        attention_mask: (B, L) int64.
        caption_ids: (B,) int64, equal for rows whose captions have the same tokens.
        region_ids: (B,) int64, equal for rows that show the same mask on the same picture.
    """

    pixel_values: torch.Tensor
    image_index: torch.Tensor
    masks: torch.Tensor
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    caption_ids: torch.Tensor
    region_ids: torch.Tensor

    def to(self, device: torch.device) -> Self:
        """The same rows on another device."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))


class BatchLoader:
    """Reads rows and prepares them with a model's processor.

    Images are resized by the processor, masks to the same size by nearest neighbour. Both are kept
    as bytes after the first reading when all rows fit into `largest_cache`, so that later epochs
    decode nothing; otherwise they are read anew each time and memory stays bounded.

    Args:
        rows: the data.
        processor: a `DualStreamProcessor`.
        largest_cache: most bytes to keep.

    Attributes:
        lengths: tokens of each row's caption.
    """

    def __init__(self, rows: RowSource, processor: Any, largest_cache: int = LARGEST_CACHE):
        self._rows = rows
        self._processor = processor
        self._size = int(processor.image_processor.size["height"])
        self.lengths, self._caption_ids = _token_lengths_and_ids(rows.captions, processor)
        self._prepared: np.ndarray | None = None
        self._is_prepared = np.zeros(len(rows), dtype=bool)
        if len(rows) * 4 * self._size**2 <= largest_cache:
            # Three channels of the image and one of the mask. The system hands out the memory
            # page by page, as rows are written.
            self._prepared = np.empty((len(rows), 4, self._size, self._size), dtype=np.uint8)

    def load(self, indices: Sequence[int]) -> Batch:
        """Read rows.

        Raises:
            ValueError: a row can't be read (from `RowSource`), or rows of one scene show
                different pictures.
        """
        images_and_masks = torch.from_numpy(np.stack([self._row(index) for index in indices]))
        firsts, image_index = self._pictures(indices)
        self._check_same_pictures(indices, images_and_masks[:, :3], firsts, image_index)
        image_processor = self._processor.image_processor
        mean = rearrange(torch.tensor(image_processor.image_mean), "c -> c 1 1")
        std = rearrange(torch.tensor(image_processor.image_std), "c -> c 1 1")
        pixels = images_and_masks[firsts, :3].float() * image_processor.rescale_factor
        text = self._processor(text=[self._rows.captions[index] for index in indices])
        return Batch(
            pixel_values=(pixels - mean) / std,
            image_index=torch.tensor(image_index),
            masks=images_and_masks[:, 3].bool(),
            input_ids=text["input_ids"],
            attention_mask=text["attention_mask"],
            caption_ids=self._caption_ids[list(indices)],
            region_ids=torch.tensor(
                [
                    _hash(str(self._scene(index)).encode() + mask.tobytes())
                    for index, mask in zip(indices, images_and_masks[:, 3].numpy(), strict=True)
                ]
            ),
        )

    def load_ahead(self, batches: Iterable[Sequence[int]], workers: int) -> Generator[Batch]:
        """Load batches in order, up to `workers` of them ahead of use, each in its own thread.

        Threads suffice: decoding and resizing release the interpreter lock. With 0 workers each
        batch is read when it is asked for.
        """
        if workers == 0:
            yield from map(self.load, batches)
            return
        waiting = iter(batches)
        with ThreadPoolExecutor(workers, thread_name_prefix="rows") as pool:
            loading: deque[Future[Batch]] = deque(
                pool.submit(self.load, indices) for indices in islice(waiting, workers)
            )
            try:
                while loading:
                    batch = loading.popleft().result()
                    for indices in islice(waiting, 1):
                        loading.append(pool.submit(self.load, indices))
                    yield batch
            finally:
                for future in loading:
                    future.cancel()

    def _pictures(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where each picture stands first among `indices`, and which of these each row shows."""
        firsts: list[int] = []
        number_of: dict[str | int, int] = {}
        image_index = []
        for position, index in enumerate(indices):
            scene = self._scene(index)
            if scene not in number_of:
                number_of[scene] = len(firsts)
                firsts.append(position)
            image_index.append(number_of[scene])
        return firsts, image_index

    def _check_same_pictures(
        self,
        indices: Sequence[int],
        pictures: torch.Tensor,
        firsts: list[int],
        image_index: list[int],
    ) -> None:
        for position, number in enumerate(image_index):
            first = firsts[number]
            if position != first and not torch.equal(pictures[position], pictures[first]):
                ids = [self._rows.ids[indices[place]] for place in (first, position)]
                raise ValueError(
                    f"the rows with the ids {ids[0]!r} and {ids[1]!r} have the same scene but "
                    "different pictures: correct the scene column, or set data.scene_column to "
                    "null if it means something else."
                )

    def _scene(self, index: int) -> str | int:
        return index if self._rows.scenes is None else self._rows.scenes[index]

    def _row(self, index: int) -> np.ndarray:
        if self._prepared is None:
            return self._read(index)
        if not self._is_prepared[index]:
            self._prepared[index] = self._read(index)
            self._is_prepared[index] = True
        return self._prepared[index]

    def _read(self, index: int) -> np.ndarray:
        row = self._rows[index]
        resized = self._processor.image_processor(
            [row.image], do_rescale=False, do_normalize=False, return_tensors="np"
        )
        mask = Image.fromarray(row.mask.astype(np.uint8)).resize(
            (self._size, self._size), Image.Resampling.NEAREST
        )
        return np.concatenate([resized["pixel_values"][0], np.asarray(mask)[None]])


def _hash(content: bytes) -> int:
    """A 63-bit hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) >> 1


def _token_lengths_and_ids(
    captions: Sequence[str], processor: Any
) -> tuple[list[int], torch.Tensor]:
    lengths: list[int] = []
    ids: list[int] = []
    first_seen: dict[tuple[int, ...], int] = {}
    for start in range(0, len(captions), _CAPTIONS_AT_A_TIME):
        some = list(captions[start : start + _CAPTIONS_AT_A_TIME])
        for tokens in processor.tokenizer(some)["input_ids"]:
            lengths.append(len(tokens))
            ids.append(first_seen.setdefault(tuple(tokens), len(first_seen)))
    return lengths, torch.tensor(ids)

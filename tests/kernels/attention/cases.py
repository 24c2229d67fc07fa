"""Options of blockwise attention that both implementations are tested with."""

from typing import Any

import torch

CU_SEQLENS = torch.tensor([0, 0, 3, 4, 11])
"""With an empty sequence and one of length 1."""

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "left window": {"window": (3, None)},
    "own place only": {"window": (0, 0)},
    "causal window": {"causal": True, "window": (2, None)},
    "scale": {"scale": 0.2},
    "offsets": {"causal": True, "q_offset": 3},
    "offset of keys": {"causal": True, "window": (5, 5), "k_offset": 4},
    "far offsets": {"causal": True, "q_offset": 50, "k_offset": 7},
    "sees nothing": {"causal": True, "q_offset": 7, "k_offset": 50},
}

"""Writes a file whole or not at all."""

import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write under a temporary name beside the target, then rename it; folders are made.

    Returns:
        The path written. If anything fails no half-written file is left and an old one stays.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target

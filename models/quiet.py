"""transformers without its own tables and bars, where we report ourselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and nothing below an error from transformers inside the block."""
    verbosity = logging.get_verbosity()
    showed_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if showed_bars:
            logging.enable_progress_bar()

"""Ctrl-C and SIGTERM during training: noted, and acted upon when the step is complete."""

import os
import signal
import threading
from types import FrameType
from typing import Any, Self


class TrainingInterrupted(SystemExit):
    """The run was stopped by a signal, after a checkpoint was written.

    A `SystemExit` with the shell's exit code for the signal: 130 for SIGINT, 143 for SIGTERM.
    """

    def __init__(self, signal_number: int):
        super().__init__(128 + signal_number)


class SignalWatch:
    """While entered, SIGINT and SIGTERM are noted in `received` instead of acted upon.

    The handlers before it are put back on leaving, so outside the training loop Ctrl-C stops at
    once. Only a program's main thread may set handlers: in another thread nothing is watched.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        self.received = signal_number
        # Not print: a handler may run in the middle of another one.
        os.write(2, b"\nstopping: the step is finished and a checkpoint written first\n")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

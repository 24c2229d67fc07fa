"""How much memory a call takes beyond what its inputs and results take. Linux only."""

import multiprocessing
import re
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

Prepared = Callable[[], Callable[[], object]]
_PROCESS = Path("/proc/self")


def peak_extra_bytes(prepare: Prepared) -> int:
    """The most memory that a process held during a call, above what it held before.

    Args:
        prepare: makes the inputs and returns the call; both happen in a new process, so that no
            memory that was freed earlier is used again. It must be picklable.

    Raises:
        RuntimeError: the process died, for lack of memory for example.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(prepare, theirs))
    process.start()
    theirs.close()
    try:
        return int(ours.recv())
    except EOFError:
        process.join()
        raise RuntimeError(f"the measuring process ended with {process.exitcode}") from None
    finally:
        process.join()


def _measure(prepare: Prepared, answer: Connection) -> None:
    call = prepare()
    (_PROCESS / "clear_refs").write_text("5")  # sets the high-water mark to what is held now
    before = _kibibytes("VmRSS")
    result = call()
    answer.send((_kibibytes("VmHWM") - before) * 1024)
    del result


def _kibibytes(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", (_PROCESS / "status").read_text())
    assert found is not None, name
    return int(found.group(1))

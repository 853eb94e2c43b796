"""Every way in which a verb can end early, as one sentence and an exit code."""

import errno

from penjing.errors import PenjingError, ResourceError

INTERRUPTED, BROKEN_PIPE, BUG = 130, 141, 70
# How torch, and the loader of its libraries, say that memory ran out.
_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "not enough memory", "failed to map segment")


def describe(error: BaseException, doing: str, remedy: str) -> tuple[str, int]:
    """The sentence and the exit code for `error`, which came while `doing` (such as "loading tiny")."""
    if isinstance(error, PenjingError):
        return " ".join(str(error).split()), error.exit_code
    if is_out_of_memory(error):
        return f"memory ran out while {doing}; {remedy}", ResourceError.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk filled up while {doing}; make room for it", ResourceError.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", PenjingError.exit_code
    kind = type(error).__name__
    said = " ".join(str(error).split())
    return f"unexpected {kind} while {doing}: {said}; this is a bug in penjing, --debug shows where", BUG


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is Python's, torch's or the system's way to say that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError | ImportError | OSError) and any(
        text in said for text in _NO_MEMORY
    )

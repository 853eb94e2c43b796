"""How much memory this process may still take, asked before it is taken."""

import contextlib
import ctypes
import os
import resource
from pathlib import Path

from penjing.errors import ResourceError


def available_memory() -> int:
    """Bytes free for this process: the least that the machine, its control group and its own limit leave."""
    return max(0, min(_machine(), _control_group(), _address_space()))


def leaves_room(need: int) -> bool:
    """Whether `need` bytes take at most half of what is free; the rest is for caches and everything else on
    the machine."""
    return need <= available_memory() / 2


def require_memory(need: int, purpose: str, remedy: str) -> None:
    """Raise `ResourceError` when `purpose` needs more bytes than are free."""
    free = available_memory()
    if need > free:
        raise ResourceError(
            f"{purpose} needs {need / 1e6:,.0f} MB of memory, {free / 1e6:,.0f} MB are free; {remedy}"
        )


def give_back_memory() -> None:
    """Return freed memory to the system. glibc keeps much of it in pieces, so that the peak of long work on
    large tensors would grow by several hundred MB. Does nothing where there is no glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))) * 1024
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_group() -> int:
    """What the process's memory group and those around it leave; both of Linux's layouts are read."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return _machine()
    left = [_machine()]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            left += _left_below(Path("/sys/fs/cgroup"), path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            left += _left_below(Path("/sys/fs/cgroup/memory"), path, *names)
    return min(left)


def _left_below(root: Path, path: str, limit_name: str, usage_name: str) -> list[int]:
    """Bytes left in each group from `path` up to `root` that has a limit. Cached file pages count as free."""
    found = []
    for group in (root / path.lstrip("/"), *(root / path.lstrip("/")).parents):
        if group != root and root not in group.parents:
            break
        try:
            limit = int((group / limit_name).read_text(encoding="ascii"))  # "max" is no number: no limit
            used = int((group / usage_name).read_text(encoding="ascii"))
            rows = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        cached = next((int(row.split()[1]) for row in rows if row.startswith("inactive_file ")), 0)
        found.append(limit - used + cached)
    return found


def _address_space() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return _machine()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return limit
    return limit - pages * resource.getpagesize()

"""How much memory this process may still take, asked before it is taken."""

import os
import resource
from pathlib import Path

from penjing.errors import ResourceError


def available_memory() -> int:
    """Bytes free for this process: the least that the machine, its control group and its own limit leave."""
    return max(0, min(_machine(), _control_group(), _address_space()))


def require_memory(need: int, purpose: str, remedy: str) -> None:
    """Raise `ResourceError` when `purpose` needs more bytes than are free."""
    free = available_memory()
    if need > free:
        raise ResourceError(
            f"{purpose} needs {need / 1e6:,.0f} MB of memory, {free / 1e6:,.0f} MB are free; {remedy}"
        )


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))) * 1024
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_group() -> int:
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = int((root / "memory.current").read_text(encoding="ascii"))
        return int(limit) - used if limit != "max" else _machine()
    except (OSError, ValueError):
        return _machine()


def _address_space() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return _machine()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return limit
    return limit - pages * resource.getpagesize()

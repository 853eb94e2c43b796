"""The bytes of one weights file, memory-mapped where the system allows it."""

import errno
import mmap
import os
from pathlib import Path
from typing import BinaryIO, Protocol

from penjing.errors import InputError

LFS_POINTER = b"version https://git-lfs"


class FileBytes(Protocol):
    """What readers ask of a weights file, wherever it lies; `notice` is a sentence for the user, or None."""

    @property
    def path(self) -> Path: ...
    @property
    def size(self) -> int: ...
    @property
    def notice(self) -> str | None: ...

    def bytes(self, offset: int, nbytes: int) -> memoryview:
        """`nbytes` bytes from `offset`, not to be written to; InputError where the file ends first."""
        ...

    def stream(self) -> BinaryIO:
        """The file from its start, to be read in order and closed."""
        ...

    def release(self, offset: int, nbytes: int) -> None:
        """Let the memory behind these bytes go; asking for them again is allowed."""
        ...


class MappedFile:
    """A regular file's bytes, copy-on-write: writing to them never reaches the file.

    Where the system refuses to map (some network file systems, tight limits) each request is a plain read
    and `notice` says so. Raises InputError for a file that is empty, unreadable or a git-lfs pointer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notice: str | None = None
        self._view: mmap.mmap | None = None
        try:
            with path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                refuse_lfs_pointer(path, file.read(len(LFS_POINTER)))
                self._map(file.fileno())
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror}.") from error

    def _map(self, fileno: int) -> None:
        if self.size == 0:
            raise InputError(f"{self.path} is empty; copy or download it again.")
        try:
            self._view = mmap.mmap(fileno, self.size, access=mmap.ACCESS_COPY)
        except OSError as error:
            reason = os.strerror(error.errno or errno.ENODEV)
            self.notice = (
                f"Files in {self.path.parent} can't be memory-mapped ({reason}): they are read instead, "
                "which takes more memory."
            )

    def bytes(self, offset: int, nbytes: int) -> memoryview:
        """`nbytes` bytes from `offset`, mapped and not to be written to; InputError where the file ends
        first."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise InputError(f"{self.path} ends before byte {offset + nbytes}; it has {self.size}.")
        if self._view is not None:
            return memoryview(self._view)[offset : offset + nbytes]
        data = bytearray(nbytes)
        with self.path.open("rb") as file:
            file.seek(offset)
            if file.readinto(data) != nbytes:
                raise InputError(f"{self.path} became shorter while it was read.")
        return memoryview(data)

    def stream(self) -> BinaryIO:
        """The file from its start, to be read in order and closed."""
        return self.path.open("rb")

    def release(self, offset: int, nbytes: int) -> None:
        """Let the memory behind these bytes go; they are read from the file again when next used.

        Without this, a file read once from end to end would stay in memory beside what was made of it.
        """
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if self._view is not None and length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._view.madvise(mmap.MADV_DONTNEED, start, length)


def refuse_lfs_pointer(path: Path, head: bytes) -> None:
    """InputError if a file that begins with `head` is git-lfs's placeholder for the real one."""
    if head.startswith(LFS_POINTER):
        raise InputError(
            f"{path} is a git-lfs pointer, not the file itself; run `git lfs pull` in {path.parent}."
        )

"""Folders and files that appear whole or not at all."""

import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from penjing.errors import InputError, PenjingError, ResourceError
from penjing.formats.hf_folder import CONFIG
from penjing.formats.json_file import read_json

MANIFEST = "penjing.json"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def check_target(target: Path) -> None:
    """InputError unless `target` is free, an empty folder, or one that penjing wrote and may replace.

    Penjing's own folders hold a readable `config.json` and `penjing.json`. Cheap: call it before any compute.
    """
    try:
        names = [entry.name for entry in target.iterdir()]
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise InputError(f"{target} is a file, or lies below one; give the name of a new folder.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{target} can't be written: {error}.") from error
    if names and not _is_ours(target):
        raise InputError(
            f"{target} isn't empty and wasn't written by penjing, so it isn't replaced; give a new folder."
        )


def require_writable(target: Path) -> None:
    """InputError unless the nearest folder that exists above `target` lets something be made in it.

    It is tried, since file permissions don't tell of virtual and read-only file systems.
    """
    above = next(folder for folder in target.resolve().parents if folder.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".penjing-", dir=above)).rmdir()
    except OSError as error:
        raise _failure(target, above, error) from error


def require_disk(path: Path, nbytes: int) -> None:
    """ResourceError unless the disk on which `path` lies, or would lie, has `nbytes` bytes free."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < nbytes:
        raise ResourceError(
            f"{path} needs {_mb(nbytes)} of disk, but only {_mb(free)} are free; make room for it."
        )


@contextlib.contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target` to write into, which becomes `target` when the block ends.

    Files are flushed to disk first, and a folder that penjing wrote is replaced as a whole. If the block
    raises or is interrupted the new folder is removed and `target` stays as it was; a process that is killed
    leaves the new folder under its hidden name. Raises as `check_target` does, and ResourceError when the
    disk is full.
    """
    check_target(target)
    draft = _hidden_sibling(target.resolve(), "partial")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise _failure(target, draft.parent, error) from error
    try:
        yield draft
        _sync_tree(draft)
        check_target(target)
        _put_in_place(draft, target.resolve())
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise _failure(target, draft.parent, error) from error
    finally:
        _remove(draft)


def check_target_file(target: Path) -> None:
    """InputError unless `target` is free, or a file, which is replaced. Cheap: call it before any compute."""
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file.")


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Give a path beside `target` to write to, which becomes `target` when the block ends; flushed to disk
    first, and removed if the block raises. Raises as `check_target_file` does, and ResourceError when the
    disk is full."""
    check_target_file(target)
    draft = _hidden_sibling(target.resolve(), "partial")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        _sync(draft)
        draft.replace(target.resolve())
        _sync(draft.parent)
    except OSError as error:
        raise _failure(target, draft.parent, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _failure(target: Path, folder: Path, error: OSError) -> PenjingError:
    """Why `target` can't be made in `folder`."""
    if error.errno in _NO_ROOM:
        return ResourceError(f"The disk filled up while {target} was written; make room for it.")
    return InputError(
        f"{target} can't be written: nothing can be made in {folder} ({error.strerror}); give another."
    )


def _hidden_sibling(target: Path, role: str) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.{role}")


def _put_in_place(draft: Path, target: Path) -> None:
    old = _hidden_sibling(target, "old")
    try:
        if target.exists():
            target.rename(old)
        draft.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    _sync(target.parent)
    _remove(old)


def _is_ours(folder: Path) -> bool:
    try:
        return bool(read_json(folder / CONFIG)) and bool(read_json(folder / MANIFEST))
    except PenjingError:
        return False


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"

"""Open whatever a path leads to."""

from collections.abc import Mapping
from pathlib import Path

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import Checkpoint
from penjing.formats.gguf_file import open_gguf
from penjing.formats.gguf_header import MAGIC
from penjing.formats.hf_folder import CONFIG, PICKLE_SUFFIXES, open_hf_folder
from penjing.formats.mapped import FileBytes, refuse_lfs_pointer
from penjing.formats.reference import existing_path

_ZIP_MAGIC = b"PK\x03\x04"


def open_checkpoint(path: str | Path, elsewhere: Mapping[str, FileBytes] = {}) -> Checkpoint:
    """The checkpoint in a Hugging Face folder or a GGUF file, opened and checked; no tensor is read.

    `elsewhere` has the bytes of files of weights that aren't there yet, by their names in the folder. A
    GGUF file is known by its content, whatever its name. Raises InputError for what is missing or damaged,
    UnsupportedError for kinds of files that can't be opened; each says what to do.
    """
    if Path(path).name in elsewhere:
        checkpoint = open_gguf(Path(path), elsewhere)
    else:
        path = existing_path(path)
        checkpoint = open_hf_folder(path, elsewhere) if path.is_dir() else _open_file(path)
    if not checkpoint.tensors:
        raise InputError(f"{path} holds no tensors, so there is no model in it.")
    return checkpoint


def _open_file(path: Path) -> Checkpoint:
    if not path.is_file():
        raise InputError(f"{path} is neither a folder nor a regular file.")
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from error
    if head.startswith(MAGIC):
        return open_gguf(path)
    raise _refusal(path, head)


def _refusal(path: Path, head: bytes) -> InputError:
    """Why a file that begins with `head` is no checkpoint."""
    refuse_lfs_pointer(path, head)
    if not head:
        return InputError(f"{path} is empty; copy or download it again.")
    if path.suffix == ".gguf":
        return InputError(f"{path} isn't a GGUF file: it begins with {head[:4]!r}, not {MAGIC!r}.")
    if path.suffix == ".safetensors":
        return InputError(f"{path} is weights alone; give the folder that holds it with its {CONFIG}.")
    if path.suffix in PICKLE_SUFFIXES:
        return UnsupportedError(
            f"{path} is pickled weights, which aren't opened because a pickle can run code; convert "
            "the model to safetensors and give its folder."
        )
    if head.startswith(_ZIP_MAGIC):
        return UnsupportedError(f"{path} is a zip archive; unpack it and give the folder.")
    return UnsupportedError(f"{path} is neither a GGUF file nor a folder with {CONFIG} and safetensors.")

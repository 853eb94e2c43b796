"""A Hugging Face folder: `config.json` with one safetensors file, or with shards that an index lists."""

import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.formats.json_file import read_json
from penjing.formats.mapped import FileBytes, MappedFile
from penjing.formats.quote import quote
from penjing.formats.safetensors_file import read_header, read_tensor

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLE_SUFFIXES = {".bin", ".pth", ".pt", ".ckpt"}
_SHARD_NAME = re.compile(r"[^/\\:\x00]+\.safetensors")
_ONE_OF_MANY = re.compile(r"-\d+-of-0*([2-9]|[1-9]\d+)\.safetensors$")


class HFFolder:
    """An opened folder; see `Checkpoint`."""

    kind: Literal["hf"] = "hf"

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        files: Iterable[FileBytes],
        tensors: Mapping[str, TensorInfo],
        notices: Iterable[str],
    ) -> None:
        self.path = path
        self.config = config
        self.tensors = tensors
        self._files = {file.path: file for file in files}
        unmapped = (file.notice for file in self._files.values() if file.notice)
        self.notices = tuple(dict.fromkeys((*notices, *unmapped)))

    def read(self, name: str) -> "torch.Tensor":
        """The tensor in its stored dtype, mapped and not to be written to; InputError for an unknown name."""
        if name not in self.tensors:
            raise InputError(f"{self.path} has no tensor {quote(name)}.")
        info = self.tensors[name]
        return read_tensor(self._files[info.file], info)

    def read_blocks(self, name: str) -> "torch.Tensor":
        """Folders hold no GGML blocks."""
        raise InputError(f"{self.path} holds no GGML blocks, so {quote(name)} isn't one.")

    def release(self, name: str) -> None:
        """Let the tensor's mapped memory go; reading it again is allowed."""
        info = self.tensors[name]
        self._files[info.file].release(info.offset, info.nbytes)


def open_hf_folder(path: Path, elsewhere: Mapping[str, FileBytes] = {}) -> Checkpoint:
    """Open and check a folder: its config, its index and the header of every file of weights.

    `elsewhere` has the bytes of weights that aren't in the folder, by their names in it. No tensor is read.
    Raises InputError where something is missing, truncated or contradicts itself, and UnsupportedError for
    weights of a kind that penjing doesn't open (pickle files, adapters).
    """
    names = _file_names(path) | elsewhere.keys()
    if CONFIG not in names:
        raise refusal(path, names)
    config = read_json(path / CONFIG)
    if INDEX in names:
        return _open_sharded(path, names, config, elsewhere)
    weights, notices = single_file(path, names)
    file = elsewhere.get(weights) or MappedFile(path / weights)
    return HFFolder(path, config, [file], read_header(file), notices)


def _open_sharded(
    path: Path, names: set[str], config: Mapping[str, Any], elsewhere: Mapping[str, FileBytes]
) -> HFFolder:
    shards = read_index(path / INDEX)
    check_shards(path, names, shards.keys())
    stale = safetensors_names(names) - shards.keys()
    notices = [f"Files that {INDEX} doesn't list are ignored: {some(stale)}."] if stale else []
    files: list[FileBytes] = []
    tensors: dict[str, TensorInfo] = {}
    for shard, listed in sorted(shards.items()):
        file = elsewhere.get(shard) or MappedFile(path / shard)
        header = read_header(file)
        lacking = listed - header.keys()
        if lacking:
            raise InputError(f"{INDEX} in {path} places tensors in {shard} that it lacks: {some(lacking)}.")
        unlisted = header.keys() - listed
        if unlisted:
            notices.append(
                f"Tensors of {shard} that {INDEX} doesn't place there are ignored: {some(unlisted)}."
            )
        files.append(file)
        tensors |= {name: info for name, info in header.items() if name in listed}
    return HFFolder(path, config, files, tensors, notices)


def check_shards(path: Path | str, names: set[str], shards: Set[str]) -> None:
    """InputError unless `names`, all there is, has the `shards` that an index lists and no rival to them."""
    missing = sorted(shards - names)
    if missing:
        raise InputError(
            f"{path} is incomplete: {INDEX} asks for {', '.join(map(quote, missing))}, not in the folder; "
            "copy or download what is missing."
        )
    if WEIGHTS in names - shards:
        raise InputError(
            f"{path} has both {WEIGHTS} and an {INDEX} that doesn't list it, so which of the two is the "
            "model can't be told; remove the one that is left over."
        )


def read_index(path: Path) -> dict[str, set[str]]:
    """The tensors that the index places in each file; every name is that of a file in the same folder."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{path} has no weight_map, or an empty one; copy or download it again.")
    shards: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard):
            raise InputError(
                f"{path} places tensor {quote(tensor)} in {quote(shard)}; "
                "only a *.safetensors file in the same folder is allowed."
            )
        shards.setdefault(shard, set()).add(tensor)
    return shards


def single_file(path: Path | str, names: set[str]) -> tuple[str, list[str]]:
    """The one file of weights in a folder without an index, and what to tell about the choice."""
    candidates = safetensors_names(names)
    if WEIGHTS in candidates:
        others = candidates - {WEIGHTS}
        return WEIGHTS, [f"Files beside {WEIGHTS} are ignored: {some(others)}."] if others else []
    if not candidates:
        raise refusal(path, names)
    shard_of_many = any(_ONE_OF_MANY.search(name) for name in candidates)
    if len(candidates) > 1 or shard_of_many:
        raise InputError(
            f"{path} has {some(candidates)} but no {INDEX} to say what belongs to the model; "
            "copy or download the index."
        )
    (only,) = candidates
    return only, [f"The weights are taken from {only}, as there is no {WEIGHTS}."]


def refusal(path: Path | str, names: set[str]) -> InputError:
    """Why a folder without a config, or without weights that can be opened, is no model."""
    if ADAPTER_CONFIG in names or ADAPTER_WEIGHTS in names:
        return UnsupportedError(
            f"{path} holds only an adapter, which can't be opened yet; merge it into its base model first."
        )
    ggufs = {name for name in names if name.endswith(".gguf")}
    if ggufs:
        return InputError(f"{path} is no Hugging Face folder; give one of its GGUF files: {some(ggufs)}.")
    weights = safetensors_names(names)
    if weights:
        return InputError(f"{path} has weights ({some(weights)}) but no {CONFIG}; copy or download it.")
    pickles = {name for name in names if Path(name).suffix in PICKLE_SUFFIXES}
    if pickles:
        return UnsupportedError(
            f"{path} has only pickled weights ({some(pickles)}), which aren't opened because a pickle can "
            "run code; convert them to safetensors."
        )
    lack = (
        "no weights (*.safetensors)" if CONFIG in names else f"neither {CONFIG} nor weights (*.safetensors)"
    )
    return InputError(f"{path} has {lack}; give the folder of a whole model, or a .gguf file.")


def _file_names(path: Path) -> set[str]:
    try:
        return {entry.name for entry in path.iterdir() if entry.is_file()}
    except OSError as error:
        raise InputError(f"{path} can't be listed: {error.strerror}.") from error


def safetensors_names(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith(".safetensors")} - {ADAPTER_WEIGHTS}


def some(names: Iterable[str], limit: int = 8) -> str:
    """The first names in order, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(map(quote, ordered[:limit])) + more

"""Models on the Hugging Face hub, fetched into the cache that all its tools share.

`huggingface_hub` does the work: it keeps every file that is whole, goes on where a connection broke, and
knows the token. It reads HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT.
"""

import glob
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_cached_repo_tree,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import CachedRepoTreeNotFoundError, HfHubHTTPError, OfflineModeIsEnabled

from penjing.errors import InputError, ResourceError
from penjing.formats.hf_folder import some
from penjing.formats.hub_errors import asking, why_unasked
from penjing.formats.hub_file import HubFile
from penjing.formats.hub_files import gguf_files, small_files, weight_files
from penjing.formats.locate import Progress
from penjing.formats.quote import quote
from penjing.formats.reference import HubReference

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class OnHub:
    """The folder or GGUF file in the cache that a hub id names, and a notice of the commit that it is.
    `lacking` are its weights that the cache doesn't have yet, by their names in the folder."""

    path: Path
    notice: str
    lacking: Mapping[str, HubFile]


def find_on_hub(hub: HubReference) -> OnHub:
    """Find the model and fetch its small files, which are all but the weights, unless the cache has them.

    Where the hub can't be asked, the cache must have all. Raises `InputError` for what can't be had.
    """
    with asking(hub):
        api = HfApi()
        commit = api.resolve_revision(hub.repo, revision=hub.revision).resolved
        if not _COMMIT.fullmatch(commit):
            raise InputError(f"The hub calls a commit of {hub.repo} {quote(commit)}, which is no commit.")
        names = _names_on_hub(api, hub.repo, commit)
        return _in_cache(hub, commit) if names is None else _on_hub(hub, commit, names)


def fetch(files: Sequence[HubFile], progress: Progress | None = None) -> None:
    """Fetch whole files of one model into the cache; `progress` is told of their bytes.

    Raises `InputError` where that breaks off, and `ResourceError` for want of room on the disk.
    """
    hub, total = files[0].hub, sum(file.size for file in files)
    _require_room(hub, total)
    counter = _ByteCounter(total, progress)
    with asking(hub):
        for file in files:
            # The type of `tqdm_class` is narrower than what it may be: anything that is called as tqdm is.
            hf_hub_download(hub.repo, file.name, revision=file.commit, tqdm_class=counter)  # pyright: ignore


def _names_on_hub(api: HfApi, repo: str, commit: str) -> set[str] | None:
    """All files of the commit; None if the hub can't be asked."""
    try:
        return {file.rfilename for file in api.model_info(repo, revision=commit).siblings or ()}
    except (httpx2.TransportError, OfflineModeIsEnabled):
        return None
    except HfHubHTTPError as error:
        if error.response.status_code < 500:
            raise
        return None


def _on_hub(hub: HubReference, commit: str, names: set[str]) -> OnHub:
    """Fetch the small files that the cache lacks; they say which the weights are."""
    ggufs = gguf_files(hub, names)
    # This also records the names of all files, by which a later call, offline, knows whether all are there.
    folder = _snapshot(hub, commit, [] if ggufs else small_files(names))
    plans = [
        hf_hub_download(hub.repo, name, revision=commit, dry_run=True)
        for name in ggufs or weight_files(hub, names, folder)
    ]
    files = [
        HubFile(hub, commit, plan.filename, folder / plan.filename, plan.file_size or 0)
        for plan in plans
        if plan.will_download
    ]
    for plan in plans:
        if not plan.will_download:  # another revision may have it, and this one then needs a link
            hf_hub_download(hub.repo, plan.filename, revision=commit)
    path = folder / ggufs[0] if ggufs else folder
    notice = f"{hub.repo} is opened at its commit {commit}."
    return OnHub(path, notice, {file.path.name: file for file in files})


def _in_cache(hub: HubReference, commit: str) -> OnHub:
    """What was fetched earlier, if it is all that is needed."""
    folder = _snapshot(hub, commit, (), local_files_only=True)
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    notice = f"{why_unasked()}, so {hub.repo} is opened from the cache, at its commit {commit}"
    try:
        names = {file.path for file in get_cached_repo_tree(hub.repo, revision=commit)}
    except CachedRepoTreeNotFoundError:
        names = held
        notice += "; another program fetched it, and whether that was all but the weights can't be told"
    ggufs = gguf_files(hub, names)
    _require(hub, ggufs or small_files(names), held)
    if not ggufs:
        _require(hub, weight_files(hub, names, folder), held)
    return OnHub(folder / ggufs[0] if ggufs else folder, f"{notice}.", {})


def _snapshot(hub: HubReference, commit: str, names: Iterable[str], local_files_only: bool = False) -> Path:
    """The folder of the commit in the cache, with at least the files `names`."""
    exact = [glob.escape(name) for name in names]
    return Path(
        snapshot_download(hub.repo, revision=commit, allow_patterns=exact, local_files_only=local_files_only)
    )


class _ByteCounter:
    """Stands where `huggingface_hub` expects tqdm, and passes the bytes of all files on to one bar."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._whole, self._progress = 0, total, progress

    def __call__(self, **_: object) -> "_ByteCounter":
        return self

    def __enter__(self) -> "_ByteCounter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: float | None = 1) -> None:
        """So many more bytes are on the disk."""
        self._done += int(count or 0)
        if self._progress is not None:
            self._progress(self._done, self._whole)

    def update_transfer(self, count: float | None = 1) -> None:
        """So many more came over the network, which is another number where they come compressed."""

    def set_postfix_str(self, *_: object, **__: object) -> None:
        pass

    set_transfer_postfix_str = set_postfix_str

    def close(self) -> None:
        pass


def _require(hub: HubReference, names: Iterable[str], held: set[str]) -> None:
    missing = sorted(set(names) - held)
    if missing:
        raise InputError(
            f"{why_unasked()}, and the cache lacks {some(missing)} of {hub}; open it once with a connection."
        )


def _require_room(hub: HubReference, need: int) -> None:
    """ResourceError unless the cache's disk has room for so many bytes."""
    cache = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if need > free:
        raise ResourceError(
            f"Fetching {hub} needs {need / 1e6:,.0f} MB on the disk of {cache}, {free / 1e6:,.0f} MB are "
            "free; make room, or set HF_HUB_CACHE to a folder on another disk."
        )

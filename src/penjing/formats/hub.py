"""Models on the Hugging Face hub, fetched into the cache that all its tools share.

`huggingface_hub` does the work: it keeps every file that is whole, goes on where a connection broke, and
knows the token. It reads HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT.
"""

import glob
import logging
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_cached_repo_tree,
    hf_hub_download,
    is_offline_mode,
    snapshot_download,
)
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RevisionResolutionError,
)
from huggingface_hub.utils import disable_progress_bars

from penjing.errors import InputError, ResourceError
from penjing.formats.hf_folder import some
from penjing.formats.hub_errors import hub_refusal
from penjing.formats.hub_files import gguf_files, small_files, weight_files
from penjing.formats.locate import Progress
from penjing.formats.quote import quote
from penjing.formats.reference import HubReference

_COMMIT = re.compile(r"[0-9a-f]{40}")
# RuntimeError is what the Xet transfer raises, which has no types of its own for most failures.
_RAISED = (httpx2.HTTPError, RevisionResolutionError, OSError, RuntimeError)


def fetch(hub: HubReference, progress: Progress | None = None) -> tuple[Path, str]:
    """The model's folder or GGUF file in the cache, and a notice of the commit that it is.

    Only the files that are read are fetched, and none that the cache has. Where the hub can't be asked, the
    cache must have all of them. Raises `InputError` for what can't be had, `ResourceError` for want of room
    on the disk.
    """
    with _silence(), _one_sentence(hub):
        api = HfApi()
        commit = api.resolve_revision(hub.repo, revision=hub.revision).resolved
        if not _COMMIT.fullmatch(commit):
            raise InputError(f"The hub calls a commit of {hub.repo} {quote(commit)}, which is no commit.")
        names = _names_on_hub(api, hub.repo, commit)
        if names is None:
            return _from_cache(hub, commit)
        return _from_hub(hub, commit, names, progress), f"{hub.repo} is opened at its commit {commit}."


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


def _from_hub(hub: HubReference, commit: str, names: set[str], progress: Progress | None) -> Path:
    """Fetch what the cache lacks. Weights come last: the small files say which they are."""
    ggufs = gguf_files(hub, names)
    small = [] if ggufs else small_files(names)
    # This also records the names of all files, by which a later call, offline, knows whether all are there.
    folder = _snapshot(hub, commit, small)
    weights = ggufs or weight_files(hub, names, folder)
    _download(hub, commit, weights, progress)
    return folder / ggufs[0] if ggufs else folder


def _from_cache(hub: HubReference, commit: str) -> tuple[Path, str]:
    """What was fetched earlier, if it is all that is needed."""
    folder = _snapshot(hub, commit, (), local_files_only=True)
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    notice = f"{_why_cached()}, so {hub.repo} is opened from the cache, at its commit {commit}"
    try:
        names = {file.path for file in get_cached_repo_tree(hub.repo, revision=commit)}
    except CachedRepoTreeNotFoundError:
        names = held
        notice += "; another program fetched it, and whether that was all but the weights can't be told"
    ggufs = gguf_files(hub, names)
    _require(hub, ggufs or small_files(names), held)
    if not ggufs:
        _require(hub, weight_files(hub, names, folder), held)
    return folder / ggufs[0] if ggufs else folder, f"{notice}."


def _snapshot(hub: HubReference, commit: str, names: Iterable[str], local_files_only: bool = False) -> Path:
    """The folder of the commit in the cache, with at least the files `names`."""
    exact = [glob.escape(name) for name in names]
    return Path(
        snapshot_download(hub.repo, revision=commit, allow_patterns=exact, local_files_only=local_files_only)
    )


def _download(hub: HubReference, commit: str, names: Iterable[str], progress: Progress | None) -> None:
    plans = [hf_hub_download(hub.repo, name, revision=commit, dry_run=True) for name in names]
    lacking = {plan.filename: plan.file_size or 0 for plan in plans if plan.will_download}
    _require_room(hub, sum(lacking.values()))
    counter = _ByteCounter(sum(lacking.values()), progress)
    for plan in plans:
        # The type of `tqdm_class` is narrower than what it may be: anything that is called as tqdm is.
        hf_hub_download(hub.repo, plan.filename, revision=commit, tqdm_class=counter)  # pyright: ignore


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
            f"{_why_cached()}, and the cache lacks {some(missing)} of {hub}; open it once with a connection."
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


def _why_cached() -> str:
    return "HF_HUB_OFFLINE is set" if is_offline_mode() else f"{constants.ENDPOINT} isn't available"


@contextmanager
def _silence() -> Iterator[None]:
    """No bars, warnings or log lines of `huggingface_hub`: penjing says by itself what there is to say."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="huggingface_hub")
            with disable_progress_bars():
                yield
    finally:
        logger.setLevel(level)


@contextmanager
def _one_sentence(hub: HubReference) -> Iterator[None]:
    """Make one sentence of whatever `huggingface_hub` raises."""
    try:
        yield
    except _RAISED as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the hub's
            raise
        raise hub_refusal(hub, error, _why_cached()) from error

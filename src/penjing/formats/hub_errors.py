"""Why the hub didn't give a model, in one sentence that says what to do."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import constants, is_offline_mode
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.utils import disable_progress_bars

from penjing.errors import InputError
from penjing.formats.reference import HubReference

_TOKEN = "set HF_TOKEN, or run `hf auth login`"
# RuntimeError is what the Xet transfer raises, which has no types of its own for most failures.
_RAISED = (httpx2.HTTPError, RevisionResolutionError, OSError, RuntimeError)


@contextmanager
def asking(hub: HubReference) -> Iterator[None]:
    """Around all that asks the hub: makes one sentence of whatever `huggingface_hub` raises, and keeps its
    bars, warnings and log lines away, as penjing says by itself what there is to say."""
    with _silence():
        try:
            yield
        except _RAISED as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the hub's
                raise
            raise _refusal(hub, error) from error


def why_unasked() -> str:
    """Why the hub isn't asked."""
    return "HF_HUB_OFFLINE is set" if is_offline_mode() else f"{constants.ENDPOINT} isn't available"


@contextmanager
def _silence() -> Iterator[None]:
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


def _refusal(hub: HubReference, error: BaseException) -> InputError:
    answer = _answer(error)
    if answer is not None:
        return _answered(hub, answer)
    if isinstance(error, RevisionResolutionError | LocalEntryNotFoundError):
        return InputError(
            f"There is no file or folder {str(hub)!r}; it may be a hub id, but {why_unasked()}, and the "
            "cache doesn't have it: check the path, or try again with a connection."
        )
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return InputError(
        f"Fetching {hub} broke off ({reason}); try again, which keeps every file that is whole."
    )


def _answered(hub: HubReference, answer: HfHubHTTPError) -> InputError:
    status = answer.response.status_code
    if isinstance(answer, GatedRepoError):
        return InputError(
            f"{hub.repo} on the hub is gated: ask for access on its page there, then give a token ({_TOKEN})."
        )
    if isinstance(answer, RepositoryNotFoundError):
        return InputError(
            f"There is no file or folder {str(hub)!r}, and on the hub no repository {hub.repo}, or a private "
            f"one: check the spelling, or give a token that may read it ({_TOKEN})."
        )
    if isinstance(answer, RevisionNotFoundError):
        return InputError(
            f"{hub.repo} on the hub has no revision {hub.revision or 'main'!r}; check its name."
        )
    if status in (401, 403):
        return InputError(
            f"The hub refuses access to {hub.repo} ({status}): give a token that may read it ({_TOKEN})."
        )
    return InputError(f"The hub can't give {hub} (it answers {status}); try again later.")


def _answer(error: BaseException | None) -> HfHubHTTPError | None:
    """What the hub answered, if it did; `huggingface_hub` may have wrapped it."""
    while error is not None and not isinstance(error, HfHubHTTPError):
        error = error.__cause__
    return error

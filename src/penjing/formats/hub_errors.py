"""Why the hub didn't give a model, in one sentence that says what to do."""

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from penjing.errors import InputError
from penjing.formats.reference import HubReference

_TOKEN = "set HF_TOKEN, or run `hf auth login`"


def hub_refusal(hub: HubReference, error: BaseException, unreachable: str) -> InputError:
    """The error for one of `huggingface_hub`'s. `unreachable` says why the hub isn't asked, if it isn't."""
    answer = _answer(error)
    if answer is not None:
        return _answered(hub, answer)
    if isinstance(error, RevisionResolutionError | LocalEntryNotFoundError):
        return InputError(
            f"There is no file or folder {str(hub)!r}; it may be a hub id, but {unreachable}, and the cache "
            "doesn't have it: check the path, or try again with a connection."
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

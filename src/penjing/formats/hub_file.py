"""The bytes of one file on the hub, asked for as needed: so a model is judged before it is fetched."""

import io
from pathlib import Path
from typing import BinaryIO

import httpx2
from huggingface_hub import constants, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

from penjing.errors import InputError
from penjing.formats.hub_errors import asking
from penjing.formats.reference import HubReference

# Most safetensors headers fit in the first, and most GGUF headers are a few of the second.
_AHEAD_BYTES = 1 << 17
_STREAM_BYTES = 1 << 22
# Far above any vocabulary: what the header of a hostile file can make us fetch.
_MAX_STREAM_BYTES = 1 << 29
_TRIES = 5


class HubFile:
    """See `FileBytes`. `path` is where the file will lie once it is fetched, `name` what the hub calls it."""

    notice: str | None = None

    def __init__(self, hub: HubReference, commit: str, name: str, path: Path, size: int) -> None:
        self.hub, self.commit, self.name = hub, commit, name
        self.path, self.size = path, size
        self._held_at, self._held = 0, bytearray()

    def bytes(self, offset: int, nbytes: int) -> memoryview:
        """`nbytes` bytes from `offset`; InputError where the file ends first or the hub doesn't give them."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise InputError(f"{self.path} ends before byte {offset + nbytes}; it has {self.size}.")
        if not self._held_at <= offset <= offset + nbytes <= self._held_at + len(self._held):
            ahead = min(max(nbytes, _AHEAD_BYTES), self.size - offset)
            with asking(self.hub):
                self._held_at, self._held = offset, self._ask(offset, ahead)
        start = offset - self._held_at
        return memoryview(self._held)[start : start + nbytes]

    def stream(self) -> BinaryIO:
        """The file from its start, to be read in order and closed."""
        return io.BufferedReader(_Stream(self), _STREAM_BYTES)

    def release(self, offset: int, nbytes: int) -> None:
        """Nothing is kept but what was asked for last."""

    def _ask(self, offset: int, nbytes: int) -> bytearray:
        """So many bytes; a connection that breaks is taken up where it broke."""
        data = bytearray()
        for _ in range(_TRIES):
            self._append(data, offset + len(data), nbytes - len(data))
            if len(data) == nbytes:
                return data
        raise InputError(
            f"The hub gave {len(data)} of {nbytes} bytes of {self.name} in {self.hub}; try again."
        )

    def _append(self, data: bytearray, offset: int, nbytes: int) -> None:
        """Add at most `nbytes` bytes from `offset`, as many as come."""
        url = hf_hub_url(self.hub.repo, self.name, revision=self.commit)
        headers = build_hf_headers() | {
            "range": f"bytes={offset}-{offset + nbytes - 1}",
            "accept-encoding": "identity",
        }
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with http_stream_backoff("GET", url, headers=headers, timeout=timeout) as response:
            hf_raise_for_status(response)
            skip = self._bytes_before(response, offset)
            end = len(data) + nbytes
            try:
                for chunk in response.iter_bytes():
                    data += chunk[skip : skip + end - len(data)]
                    skip = max(0, skip - len(chunk))
                    if len(data) == end:
                        return
            except httpx2.TransportError:
                pass  # the caller asks for the rest

    def _bytes_before(self, response: httpx2.Response, offset: int) -> int:
        """How many bytes come before those that were asked for: a server without ranges sends the file."""
        if response.status_code != 206:
            return offset
        sent = response.headers.get("content-range", "")
        if not sent.startswith(f"bytes {offset}-"):
            raise InputError(f"The hub was asked for bytes of {self.name} from {offset} and sent {sent!r}.")
        return 0


class _Stream(io.RawIOBase):
    """A `HubFile` read in order."""

    def __init__(self, file: HubFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        count = min(len(buffer), self._file.size - self._position, _STREAM_BYTES)
        if self._position + count > _MAX_STREAM_BYTES:
            raise InputError(
                f"{self._file.path} has a header above the limit of {_MAX_STREAM_BYTES:,} bytes."
            )
        buffer[:count] = self._file.bytes(self._position, count)
        self._position += count
        return count

"""What a model of transformers keeps of the tokens it has read, under the contract of penjing's own cache: a
token's slot is its position, rows may differ in length, and a row may go back.

transformers' caches know neither. So the ids are kept too: where a row goes back further than its cache can,
or the rows part, the text is read again. Shapes: B rows, L new tokens, S tokens seen, D width.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from penjing.errors import InputError
from penjing.model.bridge.library import can_be_cut_back

# (ids, what was kept of those before, whether to keep) -> (what the head reads, what to keep)
Read = Callable[[torch.Tensor, Any, bool], tuple[torch.Tensor, Any]]


class BridgedCache:
    """Room for `rows` texts of at most `max_length` tokens. Rows run `together` as long as they have the same
    length, and one by one from the first call in which they haven't."""

    def __init__(self, rows: int, max_length: int, together: bool = True) -> None:
        if rows < 1 or max_length < 1:
            raise InputError(f"a cache needs at least one row and one slot, not {rows} and {max_length}")
        self.max_length = max_length
        all_rows = _Rows(torch.zeros(rows, 0, dtype=torch.int64))
        self._parts = [all_rows] if together else all_rows.apart()

    def extend(self, read: Read, ids_BL: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
        """What the head reads (B, L, D) for new ids, the first of each row at position `starts`."""
        rows = sum(len(part.ids_BS) for part in self._parts)
        if len(ids_BL) != rows:
            raise InputError(f"the cache has {rows} rows, but {len(ids_BL)} are to be written")
        last = max(starts) + ids_BL.shape[1] - 1
        if last >= self.max_length:
            raise InputError(
                f"position {last} is past the cache's {self.max_length} slots; make a longer cache"
            )
        if len(self._parts) == 1 and len(set(starts)) == 1:
            return self._parts[0].extend(read, ids_BL, starts[0])
        if len(self._parts) < rows:
            self._parts = self._parts[0].apart()
        runs = zip(self._parts, ids_BL.split(1), starts, strict=True)
        return torch.cat([part.extend(read, ids_1L, start) for part, ids_1L, start in runs])


class _Rows:
    """Texts of equal length that run together: their ids, and what transformers keeps of them."""

    def __init__(self, ids_BS: torch.Tensor) -> None:
        self.ids_BS = ids_BS
        self._past: Any = None

    def apart(self) -> list["_Rows"]:
        """Each row by itself."""
        return [_Rows(ids_1S) for ids_1S in self.ids_BS.split(1)]

    def extend(self, read: Read, ids_BL: torch.Tensor, start: int) -> torch.Tensor:
        self._go_back(start)
        known = 0 if self._past is None else start
        self.ids_BS = torch.cat((self.ids_BS, ids_BL), dim=1)
        x_BLD, self._past = read(self.ids_BS[:, known:], self._past, True)
        return x_BLD[:, start - known :]

    def _go_back(self, start: int) -> None:
        """Forget the tokens from position `start` on."""
        seen = self.ids_BS.shape[1]
        if start > seen:
            raise InputError(
                f"position {start} can't be written before those from {seen} on, which are empty"
            )
        if start == seen:
            return
        self.ids_BS = self.ids_BS[:, :start]
        if start > 0 and can_be_cut_back(self._past):
            self._past.crop(start - seen)
        else:
            self._past = None

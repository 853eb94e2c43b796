"""Stop texts found in a stream, wherever the pieces happen to be cut."""

from collections.abc import Sequence

from penjing.errors import InputError


class StopMatcher:
    """Passes text on until one of the stop texts is complete, and never passes on any part of that one.

    The match that is complete first wins, and the longest of those that end together, so the result is the
    same however the text is cut into pieces. Text that may still become a stop is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise InputError("A stop text is empty; it would match everywhere. Leave it out.")
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False

    def feed(self, piece: str) -> str:
        """The text that is now known not to belong to a stop. After a match there is none."""
        if self.matched:
            return ""
        text = self._held + piece
        start = self._first_match(text)
        if start is not None:
            self.matched, self._held = True, ""
            return text[:start]
        split = self._held_from(text)
        self._held = text[split:]
        return text[:split]

    def flush(self) -> str:
        """What was held back for a stop that never came; call it once, at the end."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> int | None:
        found = ((start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0)
        return min(found, default=(0, None))[1]

    def _held_from(self, text: str) -> int:
        """Where the longest end of `text` begins that is the beginning of a stop; its length if none is."""
        longest = max(map(len, self._stops), default=1) - 1
        candidates = range(max(0, len(text) - longest), len(text))
        return next((i for i in candidates if any(s.startswith(text[i:]) for s in self._stops)), len(text))

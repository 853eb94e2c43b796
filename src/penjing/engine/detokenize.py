"""Token ids to text, one at a time, on bytes: a character leaves only when all of its bytes are there."""

import codecs

from penjing.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a growing sequence of ids into pieces of text whose concatenation is the text of all ids.

    Bytes that can never become a character turn into U+FFFD (one for each maximal invalid part, as Unicode
    recommends). Bytes of a character still incomplete are held back, and if the sequence ends there they are
    not text: whoever stops feeding has exactly the complete characters, streaming or not.

    `at_start` is False where the ids continue a text: only at its start isn't a first word's blank text.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, at_start: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = at_start

    def feed(self, token_id: int) -> str:
        """The text that this token completes, possibly empty."""
        if token_id in self._skipped:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._at_start and data:
            self._at_start = False
            data = data[self._blanks_dropped(token_id, data) :]
        return self._utf8.decode(data)

    def _blanks_dropped(self, token_id: int, data: bytes) -> int:
        """How many leading blanks of a text's first token aren't text.

        SentencePiece-like tokenizers put a blank before the first word, and their decoders take it away
        again at the start of a text only. The decoder itself is asked, since kinds differ in how many go.
        """
        leading = len(data) - len(data.lstrip(b" "))
        if leading == 0:
            return 0
        decoded = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return max(0, leading - (len(decoded) - len(decoded.lstrip(" "))))

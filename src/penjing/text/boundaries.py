"""What a tokenizer puts before and after a text."""

import tokenizers
from tokenizers.processors import TemplateProcessing


def add_boundaries(backend: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Make `backend` put the tokens `bos` and `eos`, where given, around every text."""
    around = [token for token in (bos, eos) if token is not None]
    # Token texts may hold blanks, which part the template's pieces, so it is given as a list.
    before, after = ([bos] if bos is not None else []), ([eos] if eos is not None else [])
    backend.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *before, "$B:1", *after],
        special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys(around)],
    )

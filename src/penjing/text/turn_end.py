"""The token that ends an answer by the model's own chat template.

Files often name only the token that ends a text, as base models have it, while a chat model closes its turns
with another one: its answers would run on into the next turn.
"""

from dataclasses import replace

from penjing.errors import InputError
from penjing.text.tokenizer import Tokenizer

_ANSWER = "Yes, seven."
_CHAT = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": _ANSWER}]


def with_turn_end(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, its end ids joined by the special token that the template puts after an answer."""
    end = _turn_end(tokenizer)
    return tokenizer if end is None else replace(tokenizer, end_ids=tokenizer.end_ids | {end})


def _turn_end(tokenizer: Tokenizer) -> int | None:
    if tokenizer.chat_template is None:
        return None
    try:
        text = tokenizer.chat_text(_CHAT, add_generation_prompt=False)
    except InputError:  # a template that refuses so plain a chat says nothing about ends; chats tell why
        return None
    _, answered, rest = text.rpartition(_ANSWER)
    special = {tokenizer.token_bytes(id).decode(): id for id in tokenizer.special_ids}
    following = [token for token in special if answered and rest.lstrip().startswith(token)]
    return special[max(following, key=len)] if following else None

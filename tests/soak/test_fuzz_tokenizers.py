"""Whatever bytes the older tokenizer files hold, they open and give ids or end in one clear sentence."""

import base64
import io
import json
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tests.soak.fuzzing import anything, extreme, keep_trying, nothing_but_clear_refusals, scalars, soak
from tests.unit.text_samples import mixed_strings, training_lines

from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.pretokenizer_patterns import TEKKEN

TEXTS = [*mixed_strings(20), "①ﬁ Å\r\n"]


def sentencepiece_model(kind: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()[:300]),
        model_writer=model,
        model_type=kind,
        vocab_size=500,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="nmt_nfkc" if kind == "unigram" else "identity",
        user_defined_symbols=["<think>"],
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    return model.getvalue()


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest) -> bytes:
    return sentencepiece_model(request.param)


edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=4)), max_size=4)


def edited(data: bytes, changes: list[tuple[float, bytes]], kept: float) -> bytes:
    """Overwritten at some places, cut short at the end."""
    result = bytearray(data)
    for place, new in changes:
        at = int(place * len(result))
        result[at : at + len(new)] = new
    return bytes(result[: int(kept * len(result))])


@soak
@given(edits, st.just(1.0) | st.floats(0, 1))
def test_a_sentencepiece_model_of_any_bytes(
    model: bytes, tmp_path: Path, changes: list[tuple[float, bytes]], kept: float
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(edited(model, changes, kept))
    with nothing_but_clear_refusals():
        tokenizer = tokenizer_from_folder(tmp_path)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text))


RANKS = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)) + b"ISE= 256\n"


@soak
@given(edits, st.just(1.0) | st.floats(0, 1))
def test_ranks_of_any_bytes(tmp_path: Path, changes: list[tuple[float, bytes]], kept: float) -> None:
    config = {"tokenizer_class": "QWenTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "qwen.tiktoken").write_bytes(edited(RANKS, changes, kept))
    with nothing_but_clear_refusals():
        tokenizer = tokenizer_from_folder(tmp_path)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text))


VOCAB = [
    {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
    for rank, token in enumerate([*(bytes([byte]) for byte in range(256)), b"th", b"the", b" th"])
]
counts = st.integers(0, 300) | extreme | scalars
entries = anything | st.fixed_dictionaries(
    {"rank": counts, "token_bytes": st.sampled_from(["", "dGg=", "eHg=", "?"]) | st.text(max_size=4)}
)
special = anything | st.fixed_dictionaries(
    {"rank": st.integers(0, 3) | anything, "token_str": st.sampled_from(["<s>", "</s>", "a", ""]) | scalars}
)


@keep_trying(1 / 4)
@soak
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "default_vocab_size": counts,
            "default_num_special_tokens": counts,
            "version": st.sampled_from(["v3", "v13"]) | scalars,
            "pattern": scalars,
        },
    ),
    st.lists(st.tuples(st.integers(0, len(VOCAB)), entries), max_size=2) | anything,
    st.lists(special, max_size=3) | anything,
)
def test_a_tekken_file_of_any_json(tmp_path: Path, config: dict, changes: object, names: object) -> None:
    standard = {
        "pattern": TEKKEN,
        "default_vocab_size": 262,
        "default_num_special_tokens": 3,
        "version": "v7",
    }
    vocab: object = changes
    if isinstance(changes, list) and all(isinstance(change, tuple) for change in changes):
        vocab = [*VOCAB]
        for place, entry in changes:
            vocab[place : place + 1] = [entry]
    fields = {"config": standard | config, "vocab": vocab, "special_tokens": names}
    (tmp_path / "tekken.json").write_text(json.dumps(fields), encoding="utf-8")
    with nothing_but_clear_refusals():
        tokenizer = tokenizer_from_folder(tmp_path)
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text))

"""Older tokenizer files of a folder: what is read, and what is refused in one sentence."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from penjing.errors import InputError, UnsupportedError
from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.pretokenizer_patterns import TEKKEN
from penjing.text.sentencepiece_model import read_sentencepiece
from penjing.text.tokenizer import Tokenizer
from penjing.text.wire_format import read_fields

# The wire format


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (b"", []),
        (b"\x08\x96\x01", [(1, 150)]),
        (b"\x12\x07testing", [(2, b"testing")]),
        (b"\x1d\x00\x00\x80\x3f", [(3, b"\x00\x00\x80\x3f")]),
        (b"\x21" + bytes(8) + b"\x08\x01", [(4, bytes(8)), (1, 1)]),
        (b"\x08" + b"\xff" * 9 + b"\x01", [(1, 2**64 - 1)]),
    ],
)
def test_fields_are_read_as_the_format_says(message: bytes, fields: list[tuple[int, Any]]) -> None:
    read = [
        (number, value if isinstance(value, int) else bytes(value))
        for number, value in read_fields(memoryview(message), "x")
    ]
    assert read == fields


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\x08", "doesn't end"),
        (b"\x08" + b"\xff" * 20, "doesn't end"),
        (b"\x12\x08testing", "ends beyond"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "ends beyond"),
        (b"\x1d\x00\x00", "ends beyond"),
        (b"\x00\x01", "number 0"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_a_damaged_message_is_named(message: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=f"FILE is damaged.*{sentence}"):
        list(read_fields(memoryview(message), "FILE"))


# SentencePiece models


def number(field: int, value: int) -> bytes:
    return bytes([*varint(field << 3), *varint(value)])


def varint(value: int) -> list[int]:
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return [*digits, value]


def block(field: int, data: bytes) -> bytes:
    return bytes([*varint(field << 3 | 2), *varint(len(data))]) + data


def piece(text: str, score: float = 0.0, kind: int = 1) -> bytes:
    return block(1, block(1, text.encode()) + b"\x15" + struct.pack("<f", score) + number(3, kind))


PIECES = (
    piece("<unk>", kind=2) + piece("<s>", kind=3) + piece("</s>", kind=3) + piece("▁", -1) + piece("a", -2)
)
BPE = number(3, 2)


def model(pieces: bytes = PIECES, trainer: bytes = BPE, normalizer: bytes = number(4, 0)) -> bytes:
    return pieces + block(2, trainer) + block(3, normalizer)


def test_a_model_is_read_with_the_formats_defaults() -> None:
    read = read_sentencepiece(PIECES, "x")
    assert read.pieces == ["<unk>", "<s>", "</s>", "▁", "a"]
    assert (read.scores, read.kinds) == ([0, 0, 0, -1, -2], [2, 3, 3, 1, 1])
    assert read.unigram and read.add_dummy_prefix and read.remove_extra_whitespaces
    assert not read.byte_fallback and read.charsmap == b"" and read.unknown_id == 0
    assert read.special_tokens == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def test_a_model_without_special_pieces_says_so_with_minus_one() -> None:
    none = b"".join(number(field, value) for field in (41, 42) for value in (2**64 - 1,))
    assert read_sentencepiece(model(trainer=BPE + none), "x").special_tokens == {"unk_token": "<unk>"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x12\x00", "holds no pieces"),
        (model(trainer=BPE + number(41, 5)), "special piece 5.*5 pieces"),
        (model(PIECES + piece("a")), "'a' twice"),
        (model(PIECES + piece("")), "piece 5 is damaged"),
        (model(PIECES + piece("b", kind=9)), "piece 5 is damaged"),
        (model(PIECES + piece("b", float("nan"))), "piece 5 is damaged"),
        (model(PIECES + block(1, block(1, b"\xff"))), "piece 5 isn't UTF-8"),
        (model(PIECES + block(1, number(2, 1))), "score"),
        (number(1, 1), "written as a number"),
        (model(trainer=block(3, b"x")), "field 3 should be a number"),
    ],
)
def test_a_damaged_model_is_named(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_sentencepiece(data, "FILE")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (model(trainer=number(3, 3)), "kind word"),
        (model(trainer=number(3, 4)), "kind char"),
        (model(trainer=number(3, 77)), "kind 77"),
        (model(trainer=BPE + number(24, 1)), "ends of words"),
        (model(normalizer=number(5, 0)), "escape blanks"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(data: bytes, sentence: str) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        read_sentencepiece(data, "FILE")


@pytest.mark.parametrize(
    "charsmap", [b"x", b"\xff\xff\xff\xff" + bytes(8), bytes(64), b"\x08" + bytes(3) + b"\xff" * 8]
)
def test_a_damaged_table_of_characters_is_refused(charsmap: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model(normalizer=block(2, charsmap)))
    with pytest.raises(InputError, match="table of characters"):
        tokenizer_from_folder(tmp_path).encode("a é ① \uff21")


# Folders


def write(folder: Path, **files: Any) -> Tokenizer:
    for name, value in files.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return tokenizer_from_folder(folder)


def test_a_llama_class_puts_bos_before_a_text_unless_its_config_says_otherwise(tmp_path: Path) -> None:
    assert write(tmp_path, tokenizer__model=model()).encode("a") == [1, 3, 4]
    for config, ids in (
        ({"tokenizer_class": "LlamaTokenizer"}, [1, 3, 4]),
        ({"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": True}, [1, 3, 4, 2]),
        ({"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}, [3, 4]),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, [3, 4]),
        ({"add_prefix_space": False}, [1, 4]),
    ):
        assert write(tmp_path, tokenizer__model=model(), tokenizer_config__json=config).encode("a") == ids


def test_the_blank_before_a_text_comes_once_or_after_each_special_token(tmp_path: Path) -> None:
    for legacy, ids in ((True, [1, 3, 4, 2, 3, 4]), (False, [1, 3, 4, 2, 4])):
        config = {"legacy": legacy}
        assert (
            write(tmp_path, tokenizer__model=model(), tokenizer_config__json=config).encode("a</s>a") == ids
        )


def tekken(special: Any = ("<s>", "</s>"), vocab: Any = None, **config: Any) -> dict[str, Any]:
    """A `tekken.json` of the 256 bytes and two special tokens."""
    entries = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(256)
    ]
    standard = {
        "pattern": TEKKEN,
        "default_vocab_size": 258,
        "default_num_special_tokens": 2,
        "version": "v7",
    }
    named = [{"rank": n, "token_str": text, "is_control": True} for n, text in enumerate(special)]
    return {
        "config": standard | config,
        "vocab": entries if vocab is None else [*entries, *vocab],
        "special_tokens": named,
    }


def tekken_entry(data: bytes, rank: Any = 256) -> dict[str, Any]:
    return {"rank": rank, "token_bytes": base64.b64encode(data).decode(), "token_str": None}


RANKS = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"tokenizer__model": model(), "tokenizer_config__json": {"tokenizer_class": "OwnTokenizer"}},
            "OwnTokenizer",
        ),
        (
            {"tokenizer__model": RANKS, "tokenizer_config__json": {"tokenizer_class": "OwnTokenizer"}},
            "OwnTokenizer",
        ),
        ({"tokenizer__model": RANKS}, "names no tokenizer_class"),
        ({"own__tiktoken": RANKS}, "names no tokenizer_class"),
        ({"vocab__json": {"a": 0}, "merges__txt": b""}, "of the model_type None"),
        (
            {
                "vocab__json": {"a": 0},
                "merges__txt": b"",
                "tokenizer_config__json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
            },
            "add_prefix_space",
        ),
        ({"tekken__json": tekken(pattern=r"\w+")}, r"cuts text by a pattern .* \('.*w\+'\)"),
        (
            {"tekken__json": tekken() | {"special_tokens": None, "config": tekken(version="v11")["config"]}},
            "v11",
        ),
        *(
            (
                {
                    name: RANKS,
                    "tokenizer_config__json": {"tokenizer_class": kind, "auto_map": {"AutoTokenizer": []}},
                },
                rf"{kind}.* code in the folder, which penjing never runs: .* with tokenizer\.json",
            )
            for name, kind in (("tokenizer__model", "ChatGLM4Tokenizer"), ("hy__tiktoken", "HYTokenizer"))
        ),
        ({"vocab__json": {"a": 0}}, "only vocab.json"),
        ({"spiece__model": model()}, "only spiece.model"),
    ],
)
def test_a_tokenizer_whose_rules_arent_known_is_refused_by_name(
    files: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        write(tmp_path, **files)


GPT_2 = {"tokenizer_class": "GPT2Tokenizer"}
QWEN = {"tokenizer_class": "QWenTokenizer"}
TWICE = {"added_tokens_decoder": {"3": {"content": "<a>"}, "4": {"content": "<a>"}}}
LATE = {"added_tokens_decoder": {"300": {"content": "<|im_end|>"}}}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"tekken__json": {}}, "config with a pattern"),
        ({"tekken__json": b"{"}, "isn't valid JSON"),
        ({"tekken__json": tekken(default_vocab_size="many")}, "default_vocab_size in .* should be a number"),
        ({"tekken__json": tekken(default_num_special_tokens=-1)}, "default_num_special_tokens"),
        ({"tekken__json": tekken(default_num_special_tokens=10**9)}, "doesn't fit the 2 special tokens"),
        ({"tekken__json": tekken(default_num_special_tokens=1)}, "doesn't fit the 2 special tokens"),
        ({"tekken__json": tekken(default_vocab_size=259)}, "list of at least 257 tokens"),
        ({"tekken__json": tekken(default_vocab_size=5)}, "list of at least 256 tokens"),
        ({"tekken__json": tekken() | {"vocab": {}}}, "list of at least 256 tokens"),
        ({"tekken__json": tekken() | {"special_tokens": {}}}, "should be a list"),
        ({"tekken__json": tekken() | {"special_tokens": [{"rank": 1, "token_str": "a"}]}}, "ranks from 0"),
        ({"tekken__json": tekken() | {"special_tokens": [{"rank": [], "token_str": "a"}]}}, "ranks from 0"),
        ({"tekken__json": tekken(special=("<s>", ""))}, "should have texts"),
        ({"tekken__json": tekken(special=("<s>", "<s>"))}, "same name"),
        ({"tekken__json": tekken(special=("<s>", "a"))}, "'a' both as a special token"),
        *(
            ({"tekken__json": tekken(vocab=[entry], default_vocab_size=259)}, words)
            for entry, words in (
                (tekken_entry(b"ab", rank=257), "damaged entry, number 256"),
                (tekken_entry(b""), "damaged entry"),
                ({"rank": 256, "token_bytes": "\u00e9"}, "damaged entry"),
                ({"rank": 256, "token_bytes": "?"}, "damaged entry"),
                ("ab", "damaged entry"),
                (tekken_entry(b"a"), "same token twice, again as number 256"),
            )
        ),
        ({"tokenizer__model": b"version https://git-lfs.github.com/spec/v1\n"}, "git-lfs pointer"),
        ({"qwen__tiktoken": b"IQ== 0\n", "tokenizer_config__json": QWEN}, "no token for the byte 0"),
        ({"qwen__tiktoken": RANKS + b"IQ== 256\n"}, "twice"),
        ({"qwen__tiktoken": RANKS + b"ISE= 900\n"}, "don't run from 0"),
        ({"qwen__tiktoken": RANKS + b"?? 256\n"}, "line 257"),
        ({"qwen__tiktoken": RANKS + b"ISE=\n"}, "line 257"),
        ({"qwen__tiktoken": RANKS, "added_tokens__json": {"<a>": 10**7}}, "far beyond"),
        ({"tokenizer__model": model(), "tokenizer_config__json": {"tokenizer_class": 5}}, "tokenizer_class"),
        ({"tokenizer__model": model(), "tokenizer_config__json": {"legacy": "no"}}, "legacy"),
        ({"tokenizer__model": model(), "added_tokens__json": {"<a>": "b"}}, "map tokens to ids"),
        ({"tokenizer__model": model(), "tokenizer_config__json": TWICE}, "two ids to the token '<a>'"),
        (
            {"qwen__tiktoken": RANKS, "tokenizer_config__json": QWEN | LATE},
            "two ids to the token '<.im_end",
        ),
        ({"tokenizer__model": model(), "added_tokens__json": {"<a>": 77}}, "don't belong together"),
        (
            {"vocab__json": {"a": "b"}, "merges__txt": b"", "tokenizer_config__json": GPT_2},
            "map tokens to ids",
        ),
        ({"vocab__json": {"a": 0, "b": 0}, "merges__txt": b"", "tokenizer_config__json": GPT_2}, "same id"),
        ({"vocab__json": {"a": 0}, "merges__txt": b"a b", "tokenizer_config__json": GPT_2}, "number 1"),
        ({"vocab__json": {"a": 0}, "merges__txt": b"\xff", "tokenizer_config__json": GPT_2}, "UTF-8"),
    ],
)
def test_a_damaged_or_contradictory_file_is_named(
    files: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        write(tmp_path, **files)

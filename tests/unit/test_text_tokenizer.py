"""Tokenizers from folders and from GGUF metadata: exact bytes, refusals, and what is kept."""

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.text_samples import (
    CHAT_TEMPLATE,
    byte_level_backend,
    gguf_metadata,
    mixed_strings,
    write_folder,
)
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from penjing.errors import InputError, UnsupportedError
from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.load import load_tokenizer
from penjing.text.pretokenizers import rule_for

SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [
        *("<unk>", "<s>", "</s>", "<think>"),
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *("▁", "a", "b", "ab", "▁ab", "▁▁"),
    ],
    "tokenizer.ggml.scores": [*([0.0] * 260), -10.0, -10.0, -10.0, -1.0, -2.0, -3.0],
    "tokenizer.ggml.token_type": [2, 3, 3, 4, *([6] * 256), 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}
SMALL = byte_level_backend(400)


@given(st.text())
def test_the_bytes_of_byte_level_tokens_are_the_texts(text: str) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL))
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@given(st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_the_bytes_of_sentencepiece_tokens_are_the_texts_with_a_blank_before(text: str) -> None:
    tokenizer = tokenizer_from_gguf(SENTENCEPIECE)
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not any(special in text for special in ("<unk>", "<s>", "</s>", "<think>")):
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == (f" {text}" if text else "")
        assert tokenizer.decode(ids) == text


def test_each_kind_of_token_stands_for_its_bytes() -> None:
    tokenizer = tokenizer_from_gguf(SENTENCEPIECE)
    expected = {
        1: b"<s>",
        3: b"<think>",
        4: b"\x00",
        4 + 0xF0: b"\xf0",
        260: b" ",
        264: b" ab",
        265: b"  ",
        999: b"",
    }
    assert {id: tokenizer.token_bytes(id) for id in expected} == expected


def test_bytes_that_form_no_character_are_decoded_as_replacement_characters() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL))
    smile = tokenizer.encode("😀")
    assert tokenizer.decode(smile) == "😀"
    first = next(id for id in range(tokenizer.vocab_size) if tokenizer.token_bytes(id) == b"\xf0")
    assert tokenizer.decode([first]) == "\ufffd"


def test_ids_outside_the_vocabulary_are_no_text_and_negative_ids_are_refused() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL))
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == ""
    for call in (tokenizer.token_bytes, lambda id: tokenizer.decode([id])):
        with pytest.raises(InputError, match="-1 is no token id"):
            call(-1)


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match="at character 2"):
        tokenizer_from_gguf(gguf_metadata(SMALL)).encode("ab\ud83d")


def test_a_tokenizer_cannot_be_changed() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL))
    with pytest.raises(dataclasses.FrozenInstanceError):
        tokenizer.end_ids = frozenset()  # type: ignore[misc]


def test_truncation_and_padding_in_the_file_change_no_text(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=16)
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, backend))
    text = "the quick brown fox " * 5
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("a")) == 1


# Ids of two tokenizers


def with_tokens(*texts: str) -> Any:
    metadata = gguf_metadata(SMALL)
    tokens = [*metadata["tokenizer.ggml.tokens"], *texts]
    kinds = [*metadata["tokenizer.ggml.token_type"], *[4] * len(texts)]
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    return tokenizer_from_gguf(metadata | changed)


def test_a_folder_and_its_gguf_conversion_have_the_same_ids(tmp_path: Path) -> None:
    folder = tokenizer_from_folder(write_folder(tmp_path, byte_level_backend(400)))
    assert folder.same_ids(with_tokens()) and with_tokens().same_ids(folder)


def test_more_tokens_at_free_ids_change_no_id() -> None:
    assert with_tokens().same_ids(with_tokens("<pad1>", "<pad2>"))
    assert with_tokens("<pad1>", "<pad2>").same_ids(with_tokens())


@pytest.mark.parametrize(("one", "other"), [(["<a>", "<b>"], ["<b>", "<a>"]), (["<a>"], ["<b>"])])
def test_another_token_at_an_id_is_another_mapping(one: list[str], other: list[str]) -> None:
    assert not with_tokens(*one).same_ids(with_tokens(*other))
    assert not with_tokens().same_ids(tokenizer_from_gguf(SENTENCEPIECE))


# Folders


def test_a_folder_with_another_kind_of_tokenizer_names_it_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]")
    with pytest.raises(UnsupportedError, match=r"only vocab\.txt.*save_pretrained"):
        tokenizer_from_folder(tmp_path)


def test_a_folder_without_any_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    with pytest.raises(InputError, match="isn't a folder"):
        tokenizer_from_folder(tmp_path / "none")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"model": 1}',
        b"\xff\xfe",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
)
def test_a_damaged_tokenizer_file_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        tokenizer_from_folder(tmp_path)


def test_a_decoder_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedError, match="WordPiece"):
        tokenizer_from_folder(write_folder(tmp_path, backend, {"bos_token": None, "eos_token": None}))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"bos_token": 5}, "bos_token"),
        ({"added_tokens_decoder": {"x": {"content": "<a>"}}}, "no id"),
        ({"added_tokens_decoder": {"7": {"content": "<new>"}}}, "don't belong together"),
        ({"added_tokens_decoder": [1]}, "map ids to tokens"),
        ({"chat_template": 5}, "chat_template"),
        ({"chat_template": [{"name": "default"}]}, "chat_template"),
    ],
)
def test_a_malformed_tokenizer_config_is_refused(
    config: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        tokenizer_from_folder(write_folder(tmp_path, byte_level_backend(), config))


def test_tokens_that_only_the_config_lists_are_added_at_their_ids(tmp_path: Path) -> None:
    backend = byte_level_backend()
    new = backend.get_vocab_size()
    listed = {str(new): {"content": "<new>", "special": True}}
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, backend, {"added_tokens_decoder": listed}))
    assert tokenizer.encode("a<new>") == [*tokenizer.encode("a"), new]
    assert new in tokenizer.special_ids
    assert tokenizer.decode([new]) == ""


def test_named_templates_are_kept_and_told_of(tmp_path: Path) -> None:
    named = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "rag", "template": "r"}]
    tokenizer = tokenizer_from_folder(
        write_folder(tmp_path / "a", byte_level_backend(), {"chat_template": named})
    )
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert any("rag" in notice for notice in tokenizer.notices)
    tokenizer.save(tmp_path / "b")
    assert tokenizer_from_folder(tmp_path / "b").chat_templates == {"default": CHAT_TEMPLATE, "rag": "r"}


ODD_NAMES = ["/tmp/x", "../../x", "a/b", "a\\b", "a b", "a.b", "x\n", "\0", "é", "x" * 300, ""]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_template_name_that_could_lead_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    config = {"chat_template": [{"name": name, "template": "x"}]}
    with pytest.raises(InputError, match="A chat template is called"):
        tokenizer_from_folder(write_folder(tmp_path, byte_level_backend(400), config))
    with pytest.raises(InputError, match="A chat template is called"):
        tokenizer_from_gguf(gguf_metadata(SMALL) | {f"tokenizer.chat_template.{name}": "x"})


def test_a_template_file_of_an_odd_name_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend(400))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "a b.jinja").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="'a b'"):
        tokenizer_from_folder(folder)


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/rag.jinja"])
def test_a_template_that_is_a_git_lfs_pointer_is_refused(name: str, tmp_path: Path) -> None:
    file = write_folder(tmp_path, byte_level_backend(400)) / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(InputError, match=rf"{file.name} is a git-lfs pointer"):
        tokenizer_from_folder(tmp_path)


def test_of_two_different_templates_the_file_wins_and_it_is_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend(), {"chat_template": "old"})
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert any("another one" in notice for notice in tokenizer.notices)


def test_a_config_that_contradicts_the_tokenizer_about_bos_is_told_of(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, byte_level_backend(), {"add_bos_token": True}))
    assert not tokenizer.add_bos
    assert any("add_bos_token" in notice for notice in tokenizer.notices)


def test_saving_keeps_what_the_config_says_but_not_remote_code(tmp_path: Path) -> None:
    config = {"model_max_length": 77, "auto_map": {"AutoTokenizer": ["x.Y", None]}}
    tokenizer_from_folder(write_folder(tmp_path / "a", byte_level_backend(), config)).save(tmp_path / "b")
    saved = json.loads((tmp_path / "b" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert saved["model_max_length"] == 77
    assert "auto_map" not in saved


@dataclasses.dataclass(frozen=True)
class Opened:
    """As much of a checkpoint as a tokenizer needs."""

    kind: str
    path: Path
    config: dict[str, Any]


def test_a_checkpoints_tokenizer_comes_from_its_folder_or_its_metadata(tmp_path: Path) -> None:
    folder = Opened("hf", write_folder(tmp_path, byte_level_backend(400)), {})
    file = Opened("gguf", tmp_path / "model.gguf", gguf_metadata(SMALL))
    for checkpoint in (folder, file):
        assert load_tokenizer(cast(Any, checkpoint)).encode("the fox") == SMALL.encode("the fox").ids


# GGUF


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("model", None, "should be text"),
        ("model", "t5", "kind 't5'"),
        ("model", 7, "should be text"),
        ("pre", "no-such-rule", "'no-such-rule'"),
        ("tokens", None, "has no tokenizer.ggml.tokens"),
        ("tokens", [], "is empty"),
        ("tokens", [1, 2], "array of texts"),
        ("tokens", ["a", "a"], "twice"),
        ("token_type", [1, 1], "2 entries"),
        ("token_type", ["a"] * len(SMALL.get_vocab()), "array of numbers"),
        ("merges", ["nothing"], "number 1"),
        ("merges", ["zz yy"], "number 1"),
        ("bos_token_id", 10**6, "outside its vocabulary"),
        ("eos_token_id", -1, "outside its vocabulary"),
        ("add_bos_token", "yes", "true or false"),
    ],
)
def test_a_bad_gguf_key_is_named(key: str, value: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tokenizer_from_gguf(gguf_metadata(SMALL, **{key: value}))


def test_a_gguf_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"chat_template"):
        tokenizer_from_gguf(gguf_metadata(SMALL) | {"tokenizer.chat_template": 3})


def test_named_gguf_templates_are_found() -> None:
    metadata = {"tokenizer.chat_template": CHAT_TEMPLATE, "tokenizer.chat_template.tool_use": "tools"}
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL) | metadata)
    assert tokenizer.chat_templates == {"default": CHAT_TEMPLATE, "tool_use": "tools"}
    assert tokenizer.chat_text([{"role": "user", "content": "x"}], tools=[]) == "tools"


def test_a_gguf_that_names_no_rule_is_read_like_gpt_2_and_says_so() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(SMALL, pre=None))
    assert any("GPT-2" in notice for notice in tokenizer.notices)
    for text in mixed_strings(50):
        assert tokenizer.encode(text) == tokenizer_from_gguf(gguf_metadata(SMALL)).encode(text)


def test_user_defined_tokens_are_matched_whole_and_are_text() -> None:
    tokenizer = tokenizer_from_gguf(SENTENCEPIECE)
    ids = tokenizer.encode("ab<think>ab", add_special_tokens=False)
    assert ids == [264, 3, 264]
    assert 3 not in tokenizer.special_ids
    assert tokenizer.decode(ids) == "ab<think> ab"


def test_a_sentencepiece_gguf_adds_bos_and_the_blank_unless_it_says_otherwise() -> None:
    assert tokenizer_from_gguf(SENTENCEPIECE).encode("ab") == [1, 264]
    switched = SENTENCEPIECE | {
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
    assert tokenizer_from_gguf(switched).encode("ab") == [263]


@pytest.mark.parametrize("scores", [None, [1.0], [float("nan")] * 266, ["x"] * 266])
def test_a_sentencepiece_gguf_without_usable_scores_is_refused(scores: Any) -> None:
    with pytest.raises(InputError, match=r"tokenizer\.ggml\.scores"):
        tokenizer_from_gguf(SENTENCEPIECE | {"tokenizer.ggml.scores": scores})


@pytest.mark.parametrize("key", ["precompiled_charsmap", "remove_extra_whitespaces"])
def test_a_sentencepiece_gguf_that_rewrites_text_is_refused(key: str) -> None:
    with pytest.raises(UnsupportedError, match=key):
        tokenizer_from_gguf(SENTENCEPIECE | {f"tokenizer.ggml.{key}": True})


def test_whole_words_come_before_merges_where_the_family_says_so() -> None:
    backend = byte_level_backend(400)
    vocab = backend.get_vocab()
    tokens = [*sorted(vocab, key=vocab.__getitem__), "qzx"]
    changed = {"tokens": tokens, "token_type": [1] * len(tokens)}
    plain = tokenizer_from_gguf(gguf_metadata(backend, pre="dbrx", **changed))
    whole = tokenizer_from_gguf(gguf_metadata(backend, pre="llama-bpe", add_bos_token=False, **changed))
    assert whole.encode("qzx") == [len(tokens) - 1]
    assert len(plain.encode("qzx")) == 3


@pytest.mark.parametrize(
    ("tag", "text", "pieces"),
    [
        ("gpt-2", "it's 123  x", ["it", "'s", " 123", " ", " x"]),
        ("smollm", "a 123  x", ["a", " ", "1", "2", "3", " ", " x"]),
        ("llama-bpe", "I'LL\n\n 12345 (x)", ["I", "'LL", "\n\n", " ", "123", "45", " (", "x", ")"]),
        ("qwen2", "I'LL 12", ["I", "'LL", " ", "1", "2"]),
        ("qwen35", "e\u0301 1", ["e\u0301", " ", "1"]),
        ("tekken", "camelCase 12/", ["camel", "Case", " ", "1", "2", "/"]),
        ("gpt-4o", "camelCase's 1234", ["camel", "Case's", " ", "123", "4"]),
        ("falcon", "a(b) 12345", ["a", "(", "b", ")", " ", "123", "45"]),
        ("deepseek-llm", "ab 中文12。\n", ["ab", " ", "中文", "1", "2", "。", "\n"]),
        ("deepseek-coder", "ab, 中12\n", ["ab", ",", " ", "中", "1", "2", "\n"]),
        ("deepseek-v3", "x.foo 12345", ["x", ".foo", " ", "123", "45"]),
        ("command-r", "ab 12", ["ab", " ", "1", "2"]),
        ("mpt", "ab 12", ["ab", " 12"]),
    ],
)
def test_each_familys_rule_cuts_text_as_published(tag: str, text: str, pieces: list[str]) -> None:
    spans = rule_for(tag).pre_tokenizer().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in spans] == pieces


def test_an_added_token_with_flags_survives_saving(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.add_tokens([AddedToken("<x>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer_from_folder(write_folder(tmp_path / "a", backend)).save(tmp_path / "b")
    again = tokenizer_from_folder(tmp_path / "b")
    assert again.encode("a  <x> \n b") == backend.encode("a  <x> \n b").ids

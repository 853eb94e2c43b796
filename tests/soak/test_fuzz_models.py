"""Whatever a config, a GGUF file's metadata or a tokenizer's files say, planning to load them works or ends
in a PenjingError. A few values are changed at a time, so that the rest is right and the odd ones are reached.
"""

import json
import resource
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.soak.fuzzing import anything, extreme, keep_trying, nothing_but_clear_refusals, soak
from tests.unit.formats_files import gguf_entry, gguf_tensor, gguf_text, raw_gguf
from tests.unit.models import CONFIG, hf_model, random_tensors
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend, gguf_metadata

from penjing.formats.open import open_checkpoint
from penjing.model.config import ROPE_NEEDS
from penjing.model.families.registry import FAMILIES
from penjing.model.plan import plan_load
from penjing.packed.affine_spec import AffineSpec
from penjing.text.load import load_tokenizer

SMALL = CONFIG | {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
BACKEND = byte_level_backend(300)


def plan_and_tokenize(path: Path) -> None:
    """Each by itself: a refusal of the one must not hide the other."""
    with nothing_but_clear_refusals():
        plan_load(open_checkpoint(path))
    with nothing_but_clear_refusals():
        load_tokenizer(open_checkpoint(path)).encode("the quick fox")


def changes(keys: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """New values for one to three keys; None removes a key."""
    return st.dictionaries(st.sampled_from(keys), values, min_size=1, max_size=3)


def applied(values: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**values, **changed}.items() if value is not None}


small = st.integers(0, 70)
factors = st.lists(st.one_of(st.floats(0, 4), anything), min_size=6, max_size=10)
rope = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(sorted(ROPE_NEEDS))},
    optional={
        **{
            name: st.one_of(st.floats(0, 64), small, anything)
            for name in (
                *("factor", "rope_theta", "original_max_position_embeddings", "attention_factor"),
                *("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "type"),
            )
        },
        "short_factor": factors,
        "long_factor": factors,
        "truncate": anything,
    },
)
modules = st.dictionaries(
    st.sampled_from(["model.layers.0.mlp.up_proj", "model.embed_tokens", "model.norm", "nowhere"]),
    st.one_of(
        anything,
        st.fixed_dictionaries(
            {
                "scheme": st.one_of(st.just(AffineSpec.scheme), anything),
                "bits": st.one_of(small, anything),
                "group_size": st.one_of(small, anything),
            }
        ),
    ),
    max_size=2,
)
quantization = st.fixed_dictionaries(
    {
        "quant_method": st.one_of(st.just("penjing"), anything),
        "format_version": st.one_of(st.just(1), anything),
        "modules": st.one_of(modules, anything),
    }
)
CONFIG_KEYS = [
    *CONFIG,
    *("head_dim", "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "use_sliding_window"),
    *("max_window_layers", "quantization_config", "attention_bias", "mlp_bias", "eos_token_id", "dtype"),
]
config_values = st.one_of(
    *(anything, small, rope, quantization, extreme),
    st.sampled_from([family.model_types[0] for family in FAMILIES]),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "", 0]), max_size=3),
)


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """What a file says is not enough to take memory: a GB above what the process has is an error here."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**9, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hf_model(tmp_path_factory.mktemp("hf") / "m", SMALL)


@keep_trying(1 / 2)
@soak
@given(changes(CONFIG_KEYS, config_values))
@example({"head_dim": 2**31})
@example({"vocab_size": 2**31, "hidden_size": 2**31})
def test_a_config_with_any_values_changed(folder: Path, changed: dict[str, Any]):
    (folder / "config.json").write_text(json.dumps(applied(SMALL, changed)), encoding="utf-8")
    plan_and_tokenize(folder)


token = st.one_of(
    *(anything, st.sampled_from(["<s>", "<new>", "the"])),
    st.fixed_dictionaries({"content": st.one_of(st.sampled_from(["<s>", "<new>"]), anything)}),
)
TOKENIZER_KEYS = ["bos_token", "eos_token", "pad_token", "additional_special_tokens", "extra_special_tokens"]
tokenizer_changes = st.one_of(
    changes([*TOKENIZER_KEYS, "added_tokens_decoder", "chat_template", "add_bos_token"], anything),
    changes(TOKENIZER_KEYS, st.one_of(token, st.lists(token, max_size=2))),
    st.fixed_dictionaries(
        {"added_tokens_decoder": st.dictionaries(st.sampled_from(["0", "7", "600", "9" * 20, "²"]), token)}
    ),
    st.fixed_dictionaries(
        {
            "chat_template": st.lists(
                st.fixed_dictionaries({"name": st.text() | anything, "template": anything}), max_size=2
            )
        }
    ),
)


@keep_trying(1 / 2)
@soak
@given(tokenizer_changes)
def test_a_tokenizer_config_with_any_values_changed(folder: Path, changed: dict[str, Any]):
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    standard = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(applied(standard, changed)), encoding="utf-8")
    plan_and_tokenize(folder)


@keep_trying(1 / 2)
@soak
@given(
    changes(["model", "decoder", "added_tokens", "normalizer", "pre_tokenizer", "post_processor"], anything)
)
def test_a_tokenizer_file_with_any_values_changed(folder: Path, changed: dict[str, Any]):
    file = folder / "tokenizer.json"
    whole = file.read_bytes()
    file.write_text(json.dumps({**json.loads(whole), **changed}), encoding="utf-8")
    plan_and_tokenize(folder)
    file.write_bytes(whole)


METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 256,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10_000.0,
    "llama.vocab_size": 300,
    **gguf_metadata(BACKEND),
}
METADATA_KEYS = [
    *METADATA,
    *("llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.scaling.original_context_length"),
    *("llama.rope.dimension_count", "llama.attention.key_length", "llama.expert_count", "general.alignment"),
    *("tokenizer.ggml.scores", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.eot_token_id"),
    *("tokenizer.chat_template", "tokenizer.chat_template.../x", "llama.attention.sliding_window"),
]
plain = st.one_of(
    *(st.booleans(), small, extreme.filter(lambda n: n < 2**63), st.floats(), st.text(max_size=5)),
    st.sampled_from(["llama", "gpt2", "qwen2", "qwen3", "yarn", "linear", "dynamic", "smollm"]),
)
metadata_values = st.one_of(
    *(st.none(), plain),
    *(st.lists(kind, max_size=4) for kind in (st.booleans(), small, st.floats(), st.text(max_size=4))),
    st.lists(st.integers(-1, 9), min_size=300, max_size=300),
)


def encoded(value: Any) -> tuple[int, bytes]:
    """The GGUF type and bytes of a value; lists are of one type."""
    if isinstance(value, list):
        items = [encoded(item) for item in value]
        kind = items[0][0] if items else 4
        return 9, struct.pack("<IQ", kind, len(items)) + b"".join(payload for _, payload in items)
    if isinstance(value, str):
        return 8, gguf_text(value.encode("utf-8"))
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    return (11, struct.pack("<q", value)) if isinstance(value, int) else (12, struct.pack("<d", value))


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """The small model with these keys; its weights are nought, for nothing here reads them."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    tensors, offset = [], 0
    for name, tensor in random_tensors(SMALL | {"vocab_size": 300}).items():
        stored = table.get_name(name, (".weight",))
        assert stored is not None
        tensors.append(gguf_tensor(stored.encode("ascii"), tensor.shape[::-1], offset=offset))
        offset += 4 * prod(tensor.shape)
    entries = [gguf_entry(key.encode("ascii"), *encoded(value)) for key, value in metadata.items()]
    raw_gguf(path, entries, tensors, bytes(offset))


def test_the_unchanged_gguf_file_opens(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", METADATA)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert plan_load(checkpoint).config.vocab_size == load_tokenizer(checkpoint).vocab_size == 300


@keep_trying(1 / 3)
@soak
@given(changes(METADATA_KEYS, metadata_values))
@example({"tokenizer.ggml.tokens": 2})
@example({"llama.attention.key_length": 2**31})
def test_gguf_metadata_with_any_values_changed(tmp_path: Path, changed: dict[str, Any]):
    write_gguf(tmp_path / "m.gguf", applied(METADATA, changed))
    plan_and_tokenize(tmp_path / "m.gguf")

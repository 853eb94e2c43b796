"""Real-world failures when a model is loaded: files and configs that contradict each other or fall short."""

import pytest
import torch
from tests.parity.twins import config_of
from tests.unit.models import CONFIG, EMBEDDING, HEAD, gguf_model, hf_model, prompt, random_tensors
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import AutoModelForCausalLM

import penjing
from penjing.errors import InputError, ResourceError, UnsupportedError
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.formats.open import open_checkpoint
from penjing.model import loading
from penjing.model.ledger import base_bytes, plan_ledger
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load
from penjing.model.saving import storage_dtypes

UNTIED = CONFIG | {"tie_word_embeddings": False}


def plan(path):
    return plan_load(open_checkpoint(path))


def logits(path):
    return load_decoder(plan(path))(*prompt())


def test_a_head_of_its_own_wins_over_a_config_that_claims_a_tie(tmp_path):
    tensors = random_tensors(UNTIED)
    honest = hf_model(tmp_path / "honest", UNTIED, tensors)
    lying = hf_model(tmp_path / "lying", UNTIED | {"tie_word_embeddings": True}, tensors)
    found = plan(lying)
    assert torch.equal(logits(lying), logits(honest))
    assert not found.config.tie_word_embeddings
    assert any("the file holds another head" in notice for notice in found.notices)


def test_a_tied_head_stored_twice_is_one_tensor(tmp_path):
    tensors = random_tensors()
    once = hf_model(tmp_path / "once", CONFIG, tensors)
    twice = hf_model(tmp_path / "twice", CONFIG, tensors | {HEAD: tensors[EMBEDDING].clone()})
    assert plan(twice).config.tie_word_embeddings
    assert torch.equal(logits(twice), logits(once))
    assert plan_ledger(plan(twice)) == plan_ledger(plan(once))
    penjing.load(twice).save(tmp_path / "again")
    assert HEAD not in open_checkpoint(tmp_path / "again").tensors


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SU = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(("old", "new", "settings"), [("llama3", "llama3", LLAMA3), ("su", "longrope", SU)])
def test_old_and_new_spellings_of_rope_settings_mean_the_same(tmp_path, old, new, settings):
    tensors, theta = random_tensors(), {"rope_theta": 5e5}
    bare = {k: v for k, v in CONFIG.items() if k != "rope_theta"}
    spellings = {
        "type": bare | theta | {"rope_scaling": {"type": old} | settings},
        "rope_type": bare | theta | {"rope_scaling": {"rope_type": new} | settings},
        "parameters": bare | {"rope_parameters": {"rope_type": new} | theta | settings},
    }
    first, *others = [logits(hf_model(tmp_path / k, config, tensors)) for k, config in spellings.items()]
    plain = logits(hf_model(tmp_path / "plain", bare | theta, tensors))
    assert all(torch.equal(first, other) for other in others)
    assert (first - plain).abs().max() > 1e-4


def test_an_unknown_rope_type_is_refused_by_name(tmp_path):
    folder = hf_model(
        tmp_path / "m", CONFIG | {"rope_scaling": {"rope_type": "foo", "factor": 2.0}}, random_tensors()
    )
    with pytest.raises(UnsupportedError, match="'foo'"):
        plan(folder)


def test_an_unknown_architecture_is_refused_with_the_supported_ones(tmp_path):
    folder = hf_model(tmp_path / "m")
    write_json(folder / "config.json", CONFIG | {"model_type": "foo"})
    with pytest.raises(UnsupportedError, match=r"'foo' is not supported .*llama, .*mistral, .*qwen3"):
        plan(folder)


def test_a_key_that_may_change_numbers_is_refused_and_a_harmless_one_is_listed(tmp_path):
    loud = hf_model(tmp_path / "loud", CONFIG | {"attention_multiplier": 0.5}, random_tensors())
    with pytest.raises(UnsupportedError, match="attention_multiplier"):
        plan(loud)
    quiet = hf_model(tmp_path / "quiet", CONFIG | {"my_note": "hello"}, random_tensors())
    assert "config key my_note has no effect here" in plan(quiet).notices


def test_missing_unexpected_and_mis_shaped_tensors_are_listed_apart_with_near_names(tmp_path):
    tensors = random_tensors()
    tensors["model.layers.0.self_attn.q_project.weight"] = tensors.pop(
        "model.layers.0.self_attn.q_proj.weight"
    )
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 96)
    tensors["extra.weight"] = torch.zeros(2)
    with pytest.raises(InputError) as error:
        plan(hf_model(tmp_path / "m", CONFIG, tensors))
    text = str(error.value)
    missing, unexpected, wrong = text.split(". ", 1)[1].split("; ")
    assert missing == (
        "missing: model.layers.0.self_attn.q_proj.weight (near: model.layers.0.self_attn.q_project.weight)"
    )
    assert "extra.weight in model.safetensors" in unexpected
    assert "model.layers.1.mlp.up_proj.weight in model.safetensors has shape [3, 96]" in wrong
    assert "[160, 96]" in wrong


def test_empty_extra_tensors_are_left_out_and_named(tmp_path):
    extra = {"extra.a": torch.zeros(4, 0), "extra.b": torch.zeros(0)}
    found = plan(hf_model(tmp_path / "m", CONFIG, random_tensors() | extra))
    assert {"extra.a is empty and is left out", "extra.b is empty and is left out"} <= set(found.notices)


def test_a_feed_forward_net_of_width_zero_works(tmp_path):
    assert logits(hf_model(tmp_path / "m", CONFIG | {"intermediate_size": 0})).isfinite().all()


def test_precision_and_ties_do_not_change_the_parameter_count(tmp_path):
    def ledger(name, config, dtype):
        return plan_ledger(plan(hf_model(tmp_path / name, config, random_tensors(config, dtype))))

    full, half = ledger("f", CONFIG, torch.float32), ledger("h", CONFIG, torch.bfloat16)
    untied = ledger("u", UNTIED, torch.bfloat16)
    assert full.parameters == half.parameters
    assert full.nbytes == 4 * full.parameters == 2 * half.nbytes
    assert untied.parameters == half.parameters + 640 * 96


def test_a_gguf_file_holds_the_same_model_bit_for_bit(tmp_path):
    tensors = random_tensors(dtype=torch.float32)
    folder, file = hf_model(tmp_path / "m", CONFIG, tensors), gguf_model(tmp_path / "m.gguf", tensors)
    from_folder, from_file = load_decoder(plan(folder)), load_decoder(plan(file))
    for name, tensor in from_folder.state_dict().items():
        assert torch.equal(from_file.state_dict()[name], tensor), name
    assert from_file.config == from_folder.config


def test_a_gguf_file_that_claims_experts_and_has_none_is_refused(tmp_path):
    file = gguf_model(tmp_path / "m.gguf", random_tensors(dtype=torch.float32))
    checkpoint = open_checkpoint(file)
    checkpoint.config["llama.expert_count"] = 8
    checkpoint.config["llama.expert_used_count"] = 2
    with pytest.raises(InputError, match=r"missing: .*ffn_gate_exps"):
        plan_load(checkpoint)


def test_too_little_memory_is_said_before_anything_is_read(tmp_path, monkeypatch):
    folder = hf_model(tmp_path / "m")
    monkeypatch.setattr("penjing.memory.available_memory", lambda: 1000)
    monkeypatch.setattr(loading, "_read_floats", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(ResourceError, match=r"loading .* needs .* MB of memory, .* are free"):
        penjing.load(folder)


def test_weights_quantised_by_another_tool_are_refused_by_its_name(tmp_path):
    config = CONFIG | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    with pytest.raises(UnsupportedError, match="'bitsandbytes' cannot be opened; use the 16-bit original"):
        plan(hf_model(tmp_path / "m", config, random_tensors()))


def test_a_format_version_from_the_future_is_refused(tmp_path):
    quantised = {"quant_method": "penjing", "format_version": 99, "modules": {}}
    with pytest.raises(UnsupportedError, match="version 99"):
        plan(hf_model(tmp_path / "m", CONFIG | {"quantization_config": quantised}, random_tensors()))


def test_a_float_gguf_file_is_held_against_its_own_precision_and_saved_in_it(tmp_path):
    file = gguf_model(tmp_path / "m.gguf", random_tensors(dtype=torch.float32))
    found = plan(file)
    stored = plan_ledger(found)
    assert stored.bytes_by_kind() == {"float32": stored.nbytes}
    assert base_bytes(stored) == stored.nbytes == 4 * stored.parameters
    assert set(storage_dtypes(found).values()) == {torch.float32}


@pytest.mark.parametrize(
    "broken",
    [
        {"model_type": []},
        {"layer_types": 5, "model_type": "mistral"},
        {"rope_scaling": {"rope_type": []}},
        {"rope_scaling": {"rope_type": "linear"}},
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        {"num_hidden_layers": 2**31 - 1},
        {"num_hidden_layers": 5_000},
        {"num_attention_heads": 0},
        {"head_dim": 7},
        {"hidden_act": "mish"},
        {
            "quantization_config": {
                "quant_method": "penjing",
                "format_version": 1,
                "modules": {"model.norm": 5},
            }
        },
        {"quantization_config": 7},
    ],
    ids=str,
)
def test_a_config_that_makes_no_sense_is_refused_before_anything_is_built(tmp_path, broken):
    folder = hf_model(tmp_path / "m")
    write_json(folder / "config.json", CONFIG | broken)
    with pytest.raises(InputError):
        plan(folder)


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    tensors = random_tensors()
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = torch.inf
    found = plan(hf_model(tmp_path / "m", CONFIG, tensors))
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj\.weight holds values that are not finite"):
        load_decoder(found)


def test_values_that_a_dtype_cannot_hold_are_not_saved_as_infinities(tmp_path):
    tensors = random_tensors()
    tensors["model.norm.weight"][0] = 1e5
    model = penjing.load(hf_model(tmp_path / "m", CONFIG, tensors))
    with pytest.raises(InputError, match="float16 can't"):
        model.cast(torch.float16).save(tmp_path / "half")
    assert not (tmp_path / "half").exists()


def test_layers_that_draft_further_tokens_are_left_out_and_said(tmp_path):
    config = config_of("glm4 moe")
    with torch.random.fork_rng():
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    whole = plan(tmp_path)
    tensors = {name: open_checkpoint(tmp_path).read(name).clone() for name in whole.checkpoint.tensors}
    extra = f"model.layers.{config.num_hidden_layers}"
    tensors |= {f"{extra}.eh_proj.weight": torch.zeros(64, 128), f"{extra}.enorm.weight": torch.zeros(64)}
    (tmp_path / "model.safetensors").unlink()
    write_safetensors_shards(tmp_path, tensors)
    found = plan(tmp_path)
    assert found.stored == whole.stored
    assert any("2 tensors of further layers" in notice for notice in found.notices)


def folder_with_added_tokens(folder, rows_short):
    """A model whose embedding lacks rows for the tokenizer's last tokens."""
    backend = byte_level_backend()
    backend.add_special_tokens(["<image_soft_token>"])
    config = CONFIG | {"vocab_size": backend.get_vocab_size() - rows_short}
    hf_model(folder, config)
    write_folder(folder, backend, {})
    return folder


def test_an_added_token_that_the_embedding_has_no_row_for_is_named_and_otherwise_let_be(tmp_path):
    """Gemma 3's smallest model comes with a token for images that it doesn't know."""
    model = penjing.load(folder_with_added_tokens(tmp_path / "m", 1))
    assert any(
        "no row for 1 of the tokenizer's added tokens (<image_soft_token>)" in n for n in model.notices
    )
    with pytest.raises(InputError, match="vocabulary"):
        next(model.stream(model.tokenizer.encode("a <image_soft_token>")))


def test_a_tokenizer_with_more_tokens_of_its_own_than_the_embedding_has_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="belongs to another model"):
        penjing.load(folder_with_added_tokens(tmp_path / "m", 40))

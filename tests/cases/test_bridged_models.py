"""Folders of architectures without a family: opened through transformers, or refused by name."""

import json

import pytest
import torch
from tests.parity.bridged import make_reference, open_reference, write_bridged
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import (
    BertConfig,
    BertLMHeadModel,
    MptForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
)
from transformers import ViTForImageClassification as VisionModel

import penjing
from penjing.cli import main
from penjing.errors import InputError, PenjingError, UnsupportedError
from penjing.formats.hf_writer import write_safetensors_shards
from penjing.formats.open import open_checkpoint
from penjing.model.attention import Layout
from penjing.model.bridge import library, probing
from penjing.model.opening import open_model

MPT = "mpt: ALiBi, tied"
CODEGEN = "codegen: untied, biased head"


@pytest.fixture
def folder(tmp_path):
    return write_bridged(MPT, tmp_path / "mpt")


def change_config(folder, **changes):
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps(values), encoding="utf-8")
    return folder


def change_tensors(folder, change):
    """Write the folder's weights again, after `change(tensors)`."""
    checkpoint = open_checkpoint(folder)
    tensors = {name: checkpoint.read(name).clone() for name in checkpoint.tensors}
    change(tensors)
    (folder / "model.safetensors").unlink()
    write_safetensors_shards(folder, tensors)
    return folder


def save_other(model, folder):
    model.save_pretrained(folder)
    write_folder(folder, byte_level_backend(), {})
    return folder


def ids_and_positions(length=20):
    ids = torch.randint(640, (1, length), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(length).unsqueeze(0)


def test_the_slower_path_is_said(folder):
    assert any(
        "mpt has no family here" in notice and "slower" in notice for notice in open_model(folder).notices
    )


def test_a_missing_tensor_is_named_before_any_weight_is_read(folder):
    change_tensors(folder, lambda tensors: tensors.pop("transformer.blocks.1.ffn.up_proj.weight"))
    with pytest.raises(InputError, match=r"missing: transformer\.blocks\.1\.ffn\.up_proj\.weight"):
        open_model(folder)


def test_an_unexpected_tensor_is_named(folder):
    change_tensors(folder, lambda tensors: tensors.update(extra=torch.zeros(2)))
    with pytest.raises(InputError, match=r"unexpected: extra in model\.safetensors"):
        open_model(folder)


def test_a_tensor_of_another_shape_is_named(folder):
    change_config(folder, n_layers=2, vocab_size=700)
    with pytest.raises(
        InputError, match=r"wte\.weight has shape \[640, 32\], the config asks for \[700, 32\]"
    ):
        open_model(folder)


def test_a_truncated_file_is_refused(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(InputError, match="truncated"):
        open_model(folder)


def test_values_that_are_not_finite_are_refused(folder):
    change_tensors(folder, lambda tensors: tensors["transformer.norm_f.weight"].fill_(float("nan")))
    with pytest.raises(InputError, match=r"norm_f\.weight holds values that are not finite"):
        penjing.load(folder)


@pytest.mark.parametrize("entry", [{"quant_method": "gptq", "bits": 4}, {"quant_method": "awq"}])
def test_quantised_folders_are_refused_by_name(folder, entry):
    change_config(folder, quantization_config=entry)
    with pytest.raises(UnsupportedError, match=f"quantised by '{entry['quant_method']}'.*16-bit original"):
        open_model(folder)


def test_weights_in_fp8_are_refused(folder):
    name = "transformer.blocks.0.ffn.up_proj.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.float8_e4m3fn)}))
    with pytest.raises(UnsupportedError, match="float8_e4m3fn"):
        open_model(folder)


def test_a_type_that_transformers_does_not_know_is_refused_and_its_code_is_not_run(folder):
    (folder / "modeling.py").write_text("raise SystemExit('the code was run')", encoding="utf-8")
    change_config(folder, model_type="bonsai", auto_map={"AutoModelForCausalLM": "modeling.Bonsai"})
    with pytest.raises(UnsupportedError, match=r"'bonsai' has no family .*own code is never run"):
        open_model(folder)


def test_a_folder_that_brings_its_own_code_opens_as_transformers_own_class(folder):
    (folder / "modeling.py").write_text("raise SystemExit('the code was run')", encoding="utf-8")
    change_config(
        folder, architectures=["MPTForCausalLM"], auto_map={"AutoModelForCausalLM": "modeling.MPTForCausalLM"}
    )
    model = penjing.load(folder)
    assert any("own code isn't run" in notice for notice in model.notices)
    ids, positions = ids_and_positions()
    assert torch.equal(model.module(ids, positions), open_reference(folder)(ids).logits)


def test_a_config_can_not_choose_an_implementation(folder):
    change_config(folder, attn_implementation="someone/kernel", _attn_implementation="someone/kernel")
    assert penjing.load(folder).module.wrapped.config._attn_implementation in ("eager", "sdpa")


def test_config_keys_that_the_class_does_not_read_are_named(folder):
    change_config(folder, qk_norm_scale=2.0, fused_add_norm=True, resid_pdrop=0.1, logit_scale=None)
    (notice,) = [n for n in open_model(folder).notices if "config keys" in n]
    assert notice.endswith(": qk_norm_scale, fused_add_norm")


def test_keys_by_their_old_names_are_read_and_not_named(tmp_path):
    folder = write_bridged("olmoe: experts, fused as they are loaded", tmp_path)
    change_config(folder, rope_parameters=None, rope_theta=10.0, rope_scaling=None)
    plan = open_model(folder).plan
    assert not any("config keys" in notice for notice in plan.notices)
    assert plan.found.config.rope_parameters["rope_theta"] == 10.0


def test_a_value_that_the_class_can_not_read_is_refused(folder):
    change_config(folder, d_model="wide")
    with pytest.raises(InputError, match="config"):
        open_model(folder)


def test_encoder_decoders_are_refused_by_name(tmp_path):
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=4, vocab_size=640)
    save_other(T5ForConditionalGeneration(config), tmp_path)
    with pytest.raises(UnsupportedError, match=r"'t5' .T5ForConditionalGeneration.*no encoder-decoders"):
        open_model(tmp_path)


def test_models_of_images_are_refused_by_name(tmp_path):
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, image_size=16, patch_size=8
    )
    save_other(VisionModel(config), tmp_path)
    with pytest.raises(UnsupportedError, match=r"'vit' .ViTForImageClassification"):
        open_model(tmp_path)


def test_another_head_than_that_of_a_language_model_is_refused(folder):
    change_config(folder, architectures=["MptForSequenceClassification"])
    with pytest.raises(UnsupportedError, match="MptForSequenceClassification"):
        open_model(folder)


def test_a_model_whose_tokens_see_those_after_them_is_refused(tmp_path):
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=16, vocab_size=640
    )
    save_other(BertLMHeadModel(config), tmp_path)
    with pytest.raises(UnsupportedError, match="depends on those after it"):
        penjing.load(tmp_path)


def test_without_transformers_the_way_to_install_it_is_named(folder, monkeypatch):
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    with pytest.raises(
        UnsupportedError, match=r"'mpt' has no family here \(.*llama.*penjing\[transformers\]"
    ):
        open_model(folder)


def test_an_old_transformers_is_refused_with_the_version_that_is_needed(folder, monkeypatch):
    monkeypatch.setattr(library, "version", lambda name: "4.57.1")
    with pytest.raises(UnsupportedError, match=r"version 5 is needed, and 4\.57\.1 is installed"):
        open_model(folder)


def test_a_tied_head_that_is_stored_twice_counts_once(folder):
    once = penjing.load(folder)
    change_tensors(
        folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].clone()})
    )
    twice = penjing.load(folder)
    assert twice.stored == once.stored
    assert any("a second time" in notice for notice in twice.notices)


def test_a_head_of_its_own_is_used_although_the_config_ties_it(folder, tmp_path):
    change_tensors(
        folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"] + 1})
    )
    model = penjing.load(folder)
    assert any("different values" in notice for notice in model.notices)
    model.save(tmp_path / "saved")
    ids, positions = ids_and_positions()
    expected = open_reference(tmp_path / "saved")(ids).logits
    assert (model.module(ids, positions) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not penjing.load(tmp_path / "saved").config.tie_word_embeddings


def test_a_body_that_was_saved_without_its_tied_head_opens(tmp_path):
    reference = make_reference(MPT)
    save_other(reference.transformer, tmp_path)
    ids, positions = ids_and_positions()
    model = penjing.load(tmp_path)
    assert (model.module(ids, positions) - reference(ids).logits).abs().max() <= 1e-5
    assert model.stored.nbytes == 4 * model.stored.parameters


def test_a_body_that_was_saved_without_its_own_head_is_refused(tmp_path):
    save_other(make_reference(CODEGEN).transformer, tmp_path)
    with pytest.raises(InputError, match=r"missing: .*lm_head\.weight"):
        open_model(tmp_path)


def test_tensors_of_mixed_types_are_saved_as_they_were(folder, tmp_path):
    change_tensors(
        folder,
        lambda tensors: tensors.update(
            {name: t.float() + 1e-6 for name, t in tensors.items() if "norm" in name}
        ),
    )
    model = penjing.load(folder)
    model.save(tmp_path / "saved")
    before, after = open_checkpoint(folder), open_checkpoint(tmp_path / "saved")
    assert before.tensors.keys() == after.tensors.keys()
    for name, info in before.tensors.items():
        assert after.tensors[name].dtype == info.dtype
        assert torch.equal(after.read(name), before.read(name))


def test_positions_that_skip_a_token_are_refused(folder):
    module = penjing.load(folder).module
    ids, positions = ids_and_positions()
    with pytest.raises(InputError, match="in order"):
        module(ids, 2 * positions)
    with pytest.raises(InputError, match="begins at position 0"):
        module(ids, positions + 1)
    with pytest.raises(InputError, match="add up to 19"):
        module(ids, positions, layout=Layout((19,)))


def test_a_cache_refuses_what_does_not_fit(folder):
    module = penjing.load(folder).module
    ids, positions = ids_and_positions()
    with pytest.raises(InputError, match="position 19 is past the cache's 8 slots"):
        module(ids, positions, cache=module.new_cache(1, 8))
    with pytest.raises(InputError, match="2 rows"):
        module(ids, positions, cache=module.new_cache(2, 32))
    with pytest.raises(InputError, match="position 1 can't be written"):
        module(ids, positions + 1, cache=module.new_cache(1, 32))
    with pytest.raises(InputError, match="packed documents"):
        module(ids, positions, layout=Layout((20,)), cache=module.new_cache(1, 32))


def test_what_needs_a_family_is_refused_by_name(folder, tmp_path):
    model = penjing.load(folder)
    with pytest.raises(UnsupportedError, match="GGUF"):
        model.save_gguf(tmp_path / "m.gguf")
    with pytest.raises(UnsupportedError, match="can't stay in the file"):
        penjing.load(folder, hold_stored=True)


def test_logits_that_are_not_finite_are_refused(folder):
    change_tensors(folder, lambda tensors: tensors["transformer.norm_f.weight"].fill_(3e38))
    with pytest.raises(PenjingError, match="aren't finite"):
        penjing.load(folder)


def test_a_head_that_can_not_be_run_apart_costs_memory_and_is_said(folder, monkeypatch):
    monkeypatch.setattr(probing, "_has_head", lambda *_: False)
    model = penjing.load(folder)
    assert any("more memory" in notice for notice in model.notices)
    ids, positions = ids_and_positions()
    expected = open_reference(folder)(ids).logits
    assert torch.equal(model.module(ids, positions), expected)
    cache = model.module.new_cache(1, 20)
    parts = [model.module(ids[:, i : i + 5], positions[:, i : i + 5], cache=cache) for i in range(0, 20, 5)]
    assert (torch.cat(parts, dim=1) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_model_that_changes_its_weights_as_it_runs_is_refused(folder, monkeypatch):
    def forward(self, *args, **options):
        self.transformer.norm_f.weight.div_(2)
        return plain(self, *args, **options)

    plain = MptForCausalLM.forward
    monkeypatch.setattr(MptForCausalLM, "forward", forward)
    with pytest.raises(UnsupportedError, match="changes its own weights"):
        penjing.load(folder)


def test_more_layers_than_tensors_are_refused_before_they_are_made(folder):
    change_config(folder, n_layers=10**9)
    with pytest.raises(InputError, match=r"1000000000 layers, but there are \d+ tensors"):
        open_model(folder)


def test_loading_leaves_the_global_random_state_alone(folder):
    before = torch.random.get_rng_state()
    penjing.load(folder)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "arguments",
    [
        ["chat", "--prompt", "hello", "--max-tokens", "4", "--temperature", "0", "--json"],
        ["eval", "--tokens", "512", "--choice-items", "4", "--json"],
        ["bench", "--prompt-tokens", "8", "--new-tokens", "2", "--batch", "2", "--repeats", "1", "--json"],
        ["show", "--json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_verbs_work_and_say_that_it_is_the_slower_path(folder, arguments, capsys):
    verb, *options = arguments
    with pytest.raises(SystemExit) as ended:
        main([verb, str(folder), *options])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    notices = found["notices"] if verb == "show" else [printed.err]
    assert any("mpt has no family here" in notice for notice in notices)
    assert "[transformers]" not in printed.err and "Loading weights" not in printed.err

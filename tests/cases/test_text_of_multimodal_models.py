"""Multimodal folders: the language model is inside, under another config and other names."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.models import prompt
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
)

import penjing
from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

TEXT = {"vocab_size": 640, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.1}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 14}
IMAGE_TOKENS = {"image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7}
MODELS = {
    "gemma3": lambda: Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=TEXT | {"sliding_window": 8, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            vision_config=VISION,
            mm_tokens_per_image=4,
            **IMAGE_TOKENS,
        )
    ),
    "mistral3": lambda: Mistral3ForConditionalGeneration(
        Mistral3Config(
            text_config=MistralConfig(**TEXT, sliding_window=None),
            vision_config=PixtralVisionConfig(**VISION),
            image_token_index=5,
        )
    ),
}
NEW_NAMES = {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head."}
NEW_NAMES |= {
    "vision_tower.": "model.vision_tower.",
    "multi_modal_projector.": "model.multi_modal_projector.",
}


@pytest.fixture(params=MODELS)
def whole(request, tmp_path):
    """The model, and its folder as it is published."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = MODELS[request.param]().eval()
    model.save_pretrained(tmp_path / "m")
    assert any(name.startswith("language_model.model.") for name in names(tmp_path / "m"))
    return model, tmp_path / "m"


def names(folder):
    return open_checkpoint(folder).tensors


def renamed(name):
    old = next(old for old in NEW_NAMES if name.startswith(old))
    return NEW_NAMES[old] + name.removeprefix(old)


def edit(folder, file, change):
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    change(content)
    (folder / file).write_text(json.dumps(content), encoding="utf-8")


@torch.inference_mode()
@pytest.mark.parametrize("naming", ["published", "since transformers 4.52"])
def test_the_language_model_is_read_and_what_is_passed_over_is_counted(whole, naming):
    model, folder = whole
    if naming != "published":
        tensors = load_file(folder / "model.safetensors")
        save_file({renamed(name): t for name, t in tensors.items()}, folder / "model.safetensors")
    found = plan_load(open_checkpoint(folder))
    ids, positions = prompt()
    assert (load_decoder(found)(ids, positions) - model(ids).logits).abs().max() <= 1e-4
    images = sum("language_model" not in name and "lm_head" not in name for name in names(folder))
    assert f"only the language model is read; {images} tensors for images are passed over" in found.notices


@torch.inference_mode()
def test_it_is_saved_as_a_model_of_text_that_transformers_opens(whole, tmp_path):
    model, folder = whole
    write_folder(folder, byte_level_backend(), {})
    penjing.load(folder).save(tmp_path / "text")
    saved, info = AutoModelForCausalLM.from_pretrained(tmp_path / "text", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert saved.config.model_type in ("gemma3_text", "mistral")
    ids, _ = prompt()
    assert (saved.eval()(ids).logits - model(ids).logits).abs().max() <= 1e-5


def test_a_config_that_names_only_what_differs_from_the_familys_defaults_is_enough(tmp_path):
    """As Gemma 3 was published: no vocabulary, heads or norms in its text_config."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240}
    text |= {"num_hidden_layers": 34, "sliding_window": 1024}
    text |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    config = {"model_type": "gemma3", "text_config": text, "eos_token_id": [1, 106]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(
        {f"language_model.model.{i}": torch.zeros(1) for i in range(40)}, tmp_path / "model.safetensors"
    )
    with pytest.raises(InputError, match=r"missing: .*model\.embed_tokens\.weight"):
        plan_load(open_checkpoint(tmp_path))


def test_a_folder_without_the_languages_own_config_is_refused(whole):
    _, folder = whole
    edit(folder, "config.json", lambda config: config.pop("text_config"))
    with pytest.raises(InputError, match="must hold text_config"):
        plan_load(open_checkpoint(folder))


def test_a_tensor_under_both_names_is_refused(whole):
    _, folder = whole
    tensors = load_file(folder / "model.safetensors")
    name = "language_model.model.norm.weight"
    save_file(tensors | {renamed(name): tensors[name].clone()}, folder / "model.safetensors")
    with pytest.raises(InputError, match="twice, under old and new names"):
        plan_load(open_checkpoint(folder))

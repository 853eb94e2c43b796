"""Tiny random models on disk, and text to measure them on."""

import json
import random
from pathlib import Path

import torch
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend, write_folder

import penjing
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.model.decoder import build_skeleton
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 600,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
WORDS = ["the", "of", "a", "root", "branch", "leaf", "water", "stone", "moss", "slow", "pot", "tree", "rain"]


def write_model(folder: Path, shard_bytes: int = 10**9, chat: bool = True, **changes) -> Path:
    """A folder as people download it: bfloat16 weights, tokenizer, template. `changes` go to the config."""
    config = CONFIG | changes
    skeleton = build_skeleton(family_of_model_type("llama", "").read(ForeignConfig(CONFIG, "")))
    generator = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.ones(meta.shape, dtype=torch.bfloat16)
        if "norm" in name
        else (torch.randn(meta.shape, generator=generator) / 8).to(torch.bfloat16)
        for name, meta in skeleton.state_dict().items()
    }
    write_folder(folder, byte_level_backend(), {"chat_template": CHAT_TEMPLATE} if chat else {})
    write_json(folder / "config.json", config)
    write_safetensors_shards(folder, tensors, max_shard_bytes=shard_bytes)
    return folder


def train(folder: Path, text: Path, steps: int = 60) -> Path:
    """The model in `folder`, taught the words of `text`, so that there is something to lose."""
    model = penjing.load(folder)
    ids = torch.tensor(model.tokenizer.encode(text.read_text(encoding="utf-8")))
    parameters = list(model.module.requires_grad_(True).parameters())
    optimiser = torch.optim.AdamW(parameters, lr=1e-2)
    positions = torch.arange(64).expand(16, -1)
    for step in range(steps):
        start = step * 1024 % (len(ids) - 1025)
        logits = model.module(ids[start : start + 1024].view(16, 64), positions)
        targets = ids[start + 1 : start + 1025]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets).backward()
        optimiser.step()
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in model.module.state_dict().items()}
    (folder / "model.safetensors").unlink()
    write_safetensors_shards(folder, tensors)
    return folder


def write_text(file: Path, documents: int = 40, words: int = 250, seed: int = 0) -> Path:
    """Documents of random words, parted as penjing parts them."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choice(WORDS) for _ in range(words)) for _ in range(documents)]
    file.write_text("\n\f\n".join(texts), encoding="utf-8")
    return file


def change_config(folder: Path, **changes) -> Path:
    """The folder, with other values in its config."""
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps(values), encoding="utf-8")
    return folder

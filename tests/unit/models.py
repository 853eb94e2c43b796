"""Tiny random models on disk in Hugging Face's and GGUF's form, for tests that need no quality."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tests.unit.text_samples import byte_level_backend, write_folder

from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.model.decoder import build_skeleton
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 640,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def random_tensors(
    config: Mapping[str, Any] = CONFIG, dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Every tensor that the config asks for, drawn at random; norms near one."""
    family = family_of_model_type(config["model_type"], "test")
    skeleton = build_skeleton(family.read(ForeignConfig(config, "test")))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, meta in skeleton.state_dict().items():
        noise = torch.randn(meta.shape, generator=generator) * 0.1
        tensors[name] = (noise + 1 if "norm" in name else noise).to(dtype)
    return tensors


def hf_model(
    folder: Path,
    config: Mapping[str, Any] = CONFIG,
    tensors: Mapping[str, torch.Tensor] | None = None,
    shard_bytes: int = 10**9,
) -> Path:
    """A folder with tokenizer, config and weights."""
    write_folder(folder, byte_level_backend(), {})
    write_json(folder / "config.json", dict(config))
    write_safetensors_shards(folder, tensors or random_tensors(config), max_shard_bytes=shard_bytes)
    return folder


def prompt(length: int = 24, rows: int = 2, vocab: int = 640) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids and their positions, (rows, length)."""
    ids = torch.randint(0, vocab, (rows, length), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(length).expand(rows, -1)


def gguf_model(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] = CONFIG,
    blocks: Sequence[gguf.GGMLQuantizationType] = (),
) -> Path:
    """The same model as llama.cpp writes it: its names, its keys, and Q and K rows in its order. Matrices are
    in the first type of `blocks` that divides their rows, else floats; of K-quants the values are all zero,
    as the gguf package can't make them."""
    arch = config["model_type"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in tensors.items():
        stored = tensor.float()
        for leaf, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if leaf in name and arch == "llama":
                stored = stored.unflatten(0, (config[heads], 2, -1)).transpose(1, 2).reshape(stored.shape)
        fitting = (
            t for t in blocks if stored.dim() == 2 and not stored.shape[-1] % gguf.GGML_QUANT_SIZES[t][0]
        )
        type_ = next(fitting, gguf.GGMLQuantizationType.F32)
        data = _stored_as(stored.contiguous().numpy(), type_)
        writer.add_tensor(table.get_name(name, (".weight", ".bias")), data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored_as(values: np.ndarray, type_: gguf.GGMLQuantizationType) -> np.ndarray:
    try:
        return gguf.quants.quantize(values, type_)
    except NotImplementedError:
        weights, nbytes = gguf.GGML_QUANT_SIZES[type_]
        return np.zeros((len(values), values.shape[1] // weights * nbytes), np.uint8)

"""A model of Qwen3-0.6B's shape with random weights, for what depends on size and not on sense.

Its 310 tensors in bfloat16 are about 1 GB; the tokenizer, and so the vocabulary, is another model's.

Usage: python -m benchmarks.random_qwen3 FOLDER FILE.gguf [--layers 28]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

import penjing
from benchmarks.smollm2 import gguf_path
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.model.config import ModelConfig
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig
from penjing.model.opening import open_model
from penjing.model.shapes import tensor_shapes

LAYERS, SEED, SCALE = 28, 0, 0.02
SHARD_BYTES = 500_000_000
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


def write_random_qwen3(folder: Path, file: Path, source: Path, layers: int = LAYERS) -> None:
    """Write one model as a Hugging Face folder in shards and as a GGUF file, with `source`'s tokenizer."""
    tokenizer = open_model(source).tokenizer
    hf_config = CONFIG | {"num_hidden_layers": layers, "vocab_size": tokenizer.vocab_size}
    config = family_of_model_type("qwen3", str(folder)).read(ForeignConfig(hf_config, str(folder)))
    folder.mkdir(parents=True)
    tokenizer.save(folder)
    write_json(folder / "config.json", hf_config)
    write_safetensors_shards(folder, _random_tensors(config), max_shard_bytes=SHARD_BYTES)
    penjing.load(folder, hold_stored=True).save_gguf(file)


def _random_tensors(config: ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(SEED)
    for name, shape in sorted(tensor_shapes(config).items()):
        noise = SCALE * torch.randn(shape, generator=generator)
        yield name, (1 + noise if len(shape) == 1 else noise).to(torch.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a random model of Qwen3-0.6B's shape.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=LAYERS)
    args = parser.parse_args()
    write_random_qwen3(args.folder, args.file, gguf_path(), args.layers)


if __name__ == "__main__":
    main()

"""Train small models on real text, for benchmarks that a large one would make too slow.

    tied      a Llama of 15M parameters: width 512, embedding and head in one, so groups of 128 fit
    untied    a Qwen3 of 9M parameters: every width a multiple of 256, as llama.cpp's K-quants need
    neox      a GPT-NeoX of 10M parameters: width 384, with biases and a parallel feed-forward part

The text is that of `benchmarks.texts` and Python's documentation; every tenth document is held out, for
judging. The learning rate rises, stays and, in the last fifth of the tokens, falls to zero. The state is kept
up to where the fall begins, so a stopped run goes on, and one with more tokens goes on from an earlier one.
A run is repeated exactly with the same number of threads.

Usage: python -m benchmarks.small_models NAME [--tokens 4000000] [--threads 1]
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from benchmarks.texts import FILES, write_texts
from penjing.text.documents import builtin_documents, read_documents

VOCAB, CONTEXT = 4096, 1024
END = "<|endoftext|>"
HELD_OUT = 10  # one document of so many is kept for judging
SEED = 20261201

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": (
        "llama",
        {
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "untied": (
        "qwen3",
        {
            "hidden_size": 256,
            "intermediate_size": 768,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "tie_word_embeddings": False,
        },
    ),
    "neox": (
        "gpt_neox",
        {
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "tie_word_embeddings": False,
        },
    ),
}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained; rates are a step's, a step is `batch` passages of `passage` tokens."""

    tokens: int
    batch: int = 8
    passage: int = 256
    peak_rate: float = 1.5e-3
    warm_up: int = 50
    fall: float = 0.2
    save_every: int = 50

    @property
    def steps(self) -> int:
        return self.tokens // (self.batch * self.passage)

    @property
    def fall_begins(self) -> int:
        return int(self.steps * (1 - self.fall))

    def rate(self, step: int) -> float:
        rise = min(1.0, (step + 1) / self.warm_up)
        fall = min(1.0, (self.steps - step) / max(1, self.steps - self.fall_begins))
        return self.peak_rate * min(rise, fall)


def train(name: str, texts: Path, out: Path, recipe: Recipe) -> None:
    """Train the model called `name` and write it to `out` as a bfloat16 folder; its state is kept beside."""
    state_file = out.with_name(f"{out.name}-state.pt")
    tokenizer = _tokenizer(texts, out.with_name("small-tokenizer.json"))
    ids = _token_ids(tokenizer, texts, out.with_name("small-ids.npy"))
    torch.manual_seed(SEED)
    model = _fresh_model(name)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_rate, betas=(0.9, 0.95), weight_decay=0.1
    )
    done = _resume(state_file, model, optimizer)
    for step in range(done, recipe.steps):
        if step <= recipe.fall_begins and step % recipe.save_every == 0 and step > done:
            _save_state(state_file, model, optimizer, step)
        loss = _step(model, optimizer, _batch(ids, recipe, step), recipe.rate(step))
        if step % 10 == 0 or step + 1 == recipe.steps:
            print(f"{name}: step {step} of {recipe.steps}, loss {loss:.3f}", flush=True)
    model.bfloat16().save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, model_max_length=CONTEXT
    ).save_pretrained(out)


def _fresh_model(name: str) -> PreTrainedModel:
    kind, fields = CONFIGS[name]
    config = AutoConfig.for_model(
        kind,
        vocab_size=VOCAB,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
        **fields,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def training_documents(documents: Sequence[str]) -> list[str]:
    return [document for i, document in enumerate(documents) if i % HELD_OUT]


def held_out_documents(documents: Sequence[str]) -> list[str]:
    return list(documents[::HELD_OUT])


def _step(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, ids_BL: torch.Tensor, rate: float
) -> float:
    """One step of AdamW on the mean loss of a batch; returns that loss."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = model(input_ids=ids_BL, labels=ids_BL).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _batch(ids: np.ndarray, recipe: Recipe, step: int) -> torch.Tensor:
    """Random passages (B, L); they depend on the step alone, so a resumed run sees the same ones."""
    generator = torch.Generator().manual_seed(SEED + step)
    starts = torch.randint(len(ids) - recipe.passage, (recipe.batch,), generator=generator)
    rows = [ids[start : start + recipe.passage].astype(np.int64) for start in starts.tolist()]
    return torch.from_numpy(np.stack(rows))


def _resume(file: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> int:
    """The step to go on from: 0, or what the state file says."""
    if not file.exists():
        return 0
    state = torch.load(file, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def _save_state(file: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, step: int) -> None:
    partial = file.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    partial.replace(file)


def _documents(texts: Path) -> Iterator[str]:
    for name in FILES:
        yield from training_documents(read_documents(texts / name))
    yield from builtin_documents()


def _tokenizer(texts: Path, file: Path) -> Tokenizer:
    """A byte-level BPE of `VOCAB` tokens, from its file or learned now."""
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_documents(texts), trainer)
        tokenizer.save(str(file))
    return Tokenizer.from_file(str(file))


def _token_ids(tokenizer: Tokenizer, texts: Path, file: Path) -> np.ndarray:
    """All training documents, each begun with the end token, as uint16 (N,)."""
    if not file.exists():
        end = tokenizer.token_to_id(END)
        parts = [[end, *tokenizer.encode(document).ids] for document in _documents(texts)]
        np.save(file, np.concatenate([np.array(part, dtype=np.uint16) for part in parts]))
    return np.load(file, mmap_mode="r")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model on real text.")
    parser.add_argument("name", choices=CONFIGS)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=Path, default=Path(".cache/benchmarks"), help="where files go")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_texts(args.work / "texts")
    train(args.name, args.work / "texts", args.work / f"small-{args.name}", Recipe(args.tokens))


if __name__ == "__main__":
    main()

"""Log-probabilities of a GGUF file as llama.cpp computes them; runs in an environment with llama-cpp-python.

Usage: python same_file_peer.py FILE IDS.npy OUT.npy, where IDS holds token ids (T,) and OUT gets (T, V)
float32.
"""

import ctypes
import sys
from typing import Any

import llama_cpp as lib  # pyright: ignore[reportMissingImports]
import numpy as np

F32 = 0  # GGML's type of an exact cache


def context_of(file: str, tokens: int) -> tuple[Any, Any]:
    """A context with exact keys and values that takes all tokens at once, and its model."""
    model = lib.llama_model_load_from_file(file.encode(), lib.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp can't open {file}")
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = tokens + 64, tokens, tokens
    params.type_k = params.type_v = F32
    params.flash_attn_type = 0
    return lib.llama_init_from_model(model, params), model


def log_probabilities(file: str, ids: list[int]) -> np.ndarray:
    context, model = context_of(file, len(ids))
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    if lib.llama_decode(context, batch):
        raise SystemExit(f"llama.cpp can't run {file}")
    rows = (
        np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), shape=(vocab,)) for i in range(len(ids))
    )
    logits = np.stack([row.astype(np.float64) for row in rows])
    logits -= logits.max(axis=1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def main() -> None:
    file, ids, out = sys.argv[1:]
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(quiet, None)
    lib.llama_backend_init()
    np.save(out, log_probabilities(file, np.load(ids).tolist()))


if __name__ == "__main__":
    main()

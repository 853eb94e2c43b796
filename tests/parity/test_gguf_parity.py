"""Every twin comes back from a GGUF file with equal logits, or the file can't hold it and that is said."""

import pytest
import torch

from penjing.errors import UnsupportedError
from penjing.formats.open import open_checkpoint
from penjing.model.gguf_saving import save_gguf
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

# What llama.cpp has no place for: it would compute something else, or not open the file.
UNSAYABLE = {
    *("llama gelu", "llama rope dynamic", "llama rope yarn mscale", "llama rope longrope"),
    *("mistral window", "ministral", "mixtral window tied", "qwen2 upper windows", "qwen2 layer types"),
    *("qwen2 moe normalised, some layers dense", "qwen2 moe every second layer", "qwen3 biases", "qwen3 moe"),
    *("gemma untied, legacy gelu", "gemma2", "gemma2 no caps", "gemma3", "gemma3 layer types, long"),
    *("gemma biases", "gemma3 capped logits, untied", "olmo2 biases", "olmo3", "smollm3 windows, all biases"),
    *("granite biases", "cohere untied, biases", "cohere2 layer types", "helium", "helium biases"),
    *("olmo2 multi-head", "smollm3 listed layers", "neox all turned, no biases"),
    *("gpt2 untied, narrow", "gpt-neo", "deepseek v3 yarn, biases"),
    *("deepseek v2 tied, biases, one layer dense", "deepseek v3 halves, unnormalised"),
    *("glm4 moe lite listed layers", "dots1 groups, biases, upper windows", "ernie untied, biases"),
    "ernie moe every second layer, none shared, untied",
    *("falcon untied, narrow", "falcon every head its own keys, biases", "falcon rw"),
    "falcon rw rounded slopes",
    *("falcon alibi, few keys", "gptj", "gptj narrow", "opt", "opt untied, no biases"),
    *("stablelm tied, all turned", "phi normed heads, few keys"),
    *("starcoder2 window, untied", "starcoder2 no biases"),
}


@torch.inference_mode()
def test_a_twin_comes_back_from_gguf_or_is_refused(twin, tmp_path, request):
    reference, module = twin
    file = tmp_path / "m.gguf"

    def save():
        dtypes = {name: torch.float32 for name, _ in module.named_parameters()}
        save_gguf(file, module, dtypes, reference.config.model_type, {"tokenizer.ggml.model": "no_vocab"})

    if request.node.callspec.params["twin"] in UNSAYABLE:
        with pytest.raises(UnsupportedError, match="--as hf"):
            save()
        assert not file.exists()
        return
    save()
    again = load_decoder(plan_load(open_checkpoint(file)))
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(40).expand(2, -1)
    whole = module(ids, positions)
    assert (again(ids, positions) - whole).abs().max() <= 1e-5 * max(1.0, float(whole.abs().max()))

"""GGUF files that hold the same in another form, as versions of llama.cpp's conversion wrote them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.parity.twins import config_of
from transformers import AutoModelForCausalLM

from penjing.errors import InputError, UnsupportedError
from penjing.formats.gguf_writer import GGUFTensor, write_gguf
from penjing.formats.open import open_checkpoint
from penjing.model.gguf_saving import save_gguf
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

IDS = torch.randint(0, 96, (2, 20), generator=torch.Generator().manual_seed(1))


def saved(twin: str, folder: Path) -> tuple[Any, Path]:
    """A twin as transformers has it, and a file of it in our form."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        reference: Any = AutoModelForCausalLM.from_config(config_of(twin)).eval()
        for name, tensor in reference.state_dict().items():
            if "bias" in name:
                torch.nn.init.normal_(tensor, std=0.2)
    reference.save_pretrained(folder / "hf")
    module = load_decoder(plan_load(open_checkpoint(folder / "hf")))
    dtypes = {name: torch.float32 for name, _ in module.named_parameters()}
    file = folder / "ours.gguf"
    save_gguf(file, module, dtypes, reference.config.model_type, {"tokenizer.ggml.model": "no_vocab"})
    return reference, file


def rewritten(
    file: Path,
    changed: Mapping[str, Mapping[str, torch.Tensor]],
    metadata: Mapping[str, Any] | None = None,
    without: str = "",
) -> Path:
    """The file with tensors in place of others, with more metadata, and without the key that ends in
    `without`."""
    checkpoint, tensors = open_checkpoint(file), {}
    for name in checkpoint.tensors:
        tensors |= changed.get(name, {name: checkpoint.read(name)})
    metadata = dict(checkpoint.config) | dict(metadata or {})
    metadata = {key: value for key, value in metadata.items() if not without or not key.endswith(without)}
    drafts = [GGUFTensor(n, tuple(t.shape), "F32", lambda t=t: t.contiguous()) for n, t in tensors.items()]
    path = file.with_name("theirs.gguf")
    write_gguf(path, metadata["general.architecture"], metadata, drafts)
    return path


def difference(file: Path, reference: Any) -> float:
    with torch.inference_mode():
        logits = load_decoder(plan_load(open_checkpoint(file)))(IDS, torch.arange(20).expand(2, -1))
        return float((logits - reference(IDS).logits).abs().max())


@pytest.mark.parametrize(("twin", "rows"), [("glm", [64, 32, 32]), ("phi", [64, 64, 64])])
def test_queries_keys_and_values_are_read_fused_and_apart(tmp_path, twin, rows):
    reference, file = saved(twin, tmp_path)
    checkpoint = open_checkpoint(file)
    apart = {}
    for name in checkpoint.tensors:
        if "attn_qkv" in name:
            parts = checkpoint.read(name).split(rows)
            apart[name] = {name.replace("qkv", leaf): part for leaf, part in zip("qkv", parts, strict=True)}
    assert len(apart) == 6
    assert difference(file, reference) <= 1e-4
    assert difference(rewritten(file, apart), reference) <= 1e-4


def test_a_lost_half_of_fused_biases_is_missed(tmp_path):
    _, file = saved("glm", tmp_path)
    lost = rewritten(file, {"blk.1.attn_qkv.bias": {}})
    with pytest.raises(InputError, match=r"missing: blk\.1\.attn_qkv\.bias"):
        plan_load(open_checkpoint(lost))


@pytest.mark.parametrize(
    ("twin", "leaf"), [("ernie moe", "exp_probs_b.bias"), ("qwen2 moe", "ffn_gate_inp_shexp.weight")]
)
def test_ones_at_the_front_of_a_shape_mean_nothing(tmp_path, twin, leaf):
    reference, file = saved(twin, tmp_path)
    checkpoint = open_checkpoint(file)
    found = {name: checkpoint.read(name) for name in checkpoint.tensors if name.endswith(leaf)}
    changed = {n: {n: t[0] if t.dim() > 1 else t.unsqueeze(0)} for n, t in found.items()}
    assert changed
    assert difference(rewritten(file, changed), reference) <= 1e-4


def test_rows_and_columns_are_not_exchanged_for_it(tmp_path):
    _, file = saved("ernie moe", tmp_path)
    name = "blk.1.exp_probs_b.bias"
    turned = {name: {name: open_checkpoint(file).read(name).unsqueeze(1)}}
    with pytest.raises(InputError, match=rf"{name} in theirs\.gguf has shape \[8, 1\]"):
        plan_load(open_checkpoint(rewritten(file, turned)))


@pytest.mark.parametrize("twin", ["stablelm biases", "stablelm 12b"])
@pytest.mark.parametrize("said", [True, False])
def test_a_stablelms_norms_tell_whether_its_sublayers_stand_side_by_side(tmp_path, twin, said):
    """Older conversions wrote that they do for every model, and llama.cpp doesn't read it."""
    reference, file = saved(twin, tmp_path)
    file = rewritten(file, {}, {"stablelm.use_parallel_residual": said})
    assert difference(file, reference) <= 1e-4


def test_a_falcon_11b_whose_rotation_base_was_left_out_is_refused(tmp_path):
    _, file = saved("falcon 11b", tmp_path)
    with pytest.raises(InputError, match=r"no rope\.freq_base"):
        plan_load(open_checkpoint(rewritten(file, {}, without="rope.freq_base")))


@pytest.mark.parametrize("twin", ["falcon", "falcon 40b"])
def test_other_falcons_have_the_usual_rotation_base(tmp_path, twin):
    reference, file = saved(twin, tmp_path)
    assert difference(rewritten(file, {}, without="rope.freq_base"), reference) <= 1e-4


def test_a_head_whose_bias_was_lost_is_refused(tmp_path):
    _, file = saved("phi", tmp_path)
    with pytest.raises(InputError, match=r"missing: output\.bias"):
        plan_load(open_checkpoint(rewritten(file, {"output.bias": {}})))


def test_a_biased_head_without_weights_is_not_taken_for_a_tied_one(tmp_path):
    _, file = saved("phi", tmp_path)
    with pytest.raises(UnsupportedError, match="tied"):
        plan_load(open_checkpoint(rewritten(file, {"output.weight": {}})))

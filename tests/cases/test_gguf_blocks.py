"""Rows that a GGUF type's blocks don't divide: what is stored is reported, and what can't be is refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tests.unit.formats_files import gguf_tensor, raw_gguf
from tests.unit.models import CONFIG, gguf_model, random_tensors

from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.ledger import plan_ledger
from penjing.model.linear import weight_of
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load

Q4_K, Q5_0, Q8_0 = (gguf.GGMLQuantizationType[name] for name in ("Q4_K", "Q5_0", "Q8_0"))
BITS = {"Q4_K": 4.5, "Q5_0": 5.5, "Q8_0": 8.5}


def narrow(width: int) -> dict:
    """A config with hidden states so wide, and a feed-forward net of 512, which 256 divides."""
    return CONFIG | {"hidden_size": width, "intermediate_size": 512, "num_attention_heads": 4}


@pytest.mark.parametrize("width", [192, 320])
def test_a_four_bit_file_whose_blocks_dont_fit_says_how_many_bits_it_really_has(tmp_path: Path, width: int):
    config = narrow(width)
    tensors = random_tensors(config, torch.float32)
    file = gguf_model(tmp_path / "m.gguf", tensors, config, blocks=(Q4_K, Q5_0))
    ledger = plan_ledger(plan_load(open_checkpoint(file)))
    kinds = ledger.bytes_by_kind()
    sizes = {"Q4_K": 2 * 512 * width}  # the two matrices with rows of 512
    sizes["Q5_0"] = sum(t.numel() for t in tensors.values() if t.dim() == 2) - sizes["Q4_K"]
    assert {kind: kinds[kind] for kind in sizes} == {
        kind: count * BITS[kind] / 8 for kind, count in sizes.items()
    }
    assert 5.0 < ledger.bits_per_weight < 6.0 and sum(kinds.values()) == ledger.nbytes


@pytest.mark.parametrize("width", [192, 320])
def test_a_type_that_was_forced_on_rows_it_doesnt_divide_is_refused_by_name(tmp_path: Path, width: int):
    tensor = gguf_tensor(b"blk.0.attn_q.weight", [width, 4], type_=int(Q4_K))
    path = raw_gguf(tmp_path / "m.gguf", tensors=[tensor], data=bytes(4096))
    with pytest.raises(InputError, match=rf"attn_q.*Rows of {width} weights .* Q4_K blocks of 256"):
        open_checkpoint(path)


def test_queries_and_keys_of_blocks_differ_from_the_floats_only_by_their_rounding(tmp_path: Path):
    tensors = random_tensors(dtype=torch.float32)
    file = gguf_model(tmp_path / "m.gguf", tensors, blocks=(Q8_0,))
    loaded = load_decoder(plan_load(open_checkpoint(file)))
    for leaf in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.1.self_attn.{leaf}"
        rounded = gguf.quants.dequantize(gguf.quants.quantize(tensors[f"{name}.weight"].numpy(), Q8_0), Q8_0)
        assert np.array_equal(weight_of(loaded, name).numpy(), rounded)

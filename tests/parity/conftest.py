"""The twins, as transformers and penjing see them; one at a time, for all tests of a file."""

import pytest
import torch
from tests.parity.twins import TWINS, config_of
from transformers import AutoModelForCausalLM

from penjing.formats.open import open_checkpoint
from penjing.model.loading import load_decoder
from penjing.model.plan import plan_load


@pytest.fixture(scope="module", params=TWINS, ids=lambda name: name.replace(" ", "-"))
def twin(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        reference = AutoModelForCausalLM.from_config(config_of(request.param)).eval()
        drawn = [(n, t) for n, t in reference.named_parameters() if "norm" in n or "ln_" in n or "bias" in n]
        drawn += [(n, t) for n, t in reference.named_buffers() if n.endswith("correction_bias")]
        for name, tensor in drawn:
            torch.nn.init.normal_(tensor, mean=float("norm" in name or "ln_" in name), std=0.2)
    reference.save_pretrained(folder)
    return reference, load_decoder(plan_load(open_checkpoint(folder)))

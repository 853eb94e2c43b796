"""Every kind of model can be shrunk, saved and opened again: experts, latents, caps, learned positions."""

import pytest
import torch
from tests.equivalence.test_shrunk_models import documents
from tests.parity.twins import config_of
from tests.unit.models import CONFIG
from tests.unit.text_samples import byte_level_backend, write_folder
from transformers import AutoModelForCausalLM

import penjing
from penjing.formats.open import open_checkpoint
from penjing.model.plan import plan_load
from penjing.model.shapes import matrix_shapes
from penjing.shrink.reach import least_bytes
from penjing.shrink.targets import packable_matrices


@pytest.fixture(
    params=[
        "gpt2",
        "gemma2 as published",
        "deepseek v3",
        "gpt-oss",
        "cohere normed heads",
        "falcon 40b",
        "neox",
    ]
)
def folder(request, tmp_path):
    config = config_of(request.param)
    config.vocab_size = CONFIG["vocab_size"]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path / "m")
    write_folder(tmp_path / "m", byte_level_backend(), {})
    return tmp_path / "m"


def test_a_model_of_this_family_is_shrunk_to_its_size_and_comes_back(folder, tmp_path):
    original = penjing.load(folder)
    result = penjing.shrink(original, to=0.5, effort="fast", texts={"words": documents()})
    assert result.nbytes <= 0.5 * original.base_bytes
    assert result.report.overall.kl is not None and result.report.overall.kl.value < 0.05
    result.save(tmp_path / "small")
    ids = torch.randint(0, 600, (2, 30), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(30).expand(2, -1)
    reopened = penjing.load(tmp_path / "small")
    with torch.inference_mode():
        assert torch.equal(reopened.module(ids, positions), result.model.module(ids, positions))


def test_what_can_be_packed_is_known_from_the_config_alone(folder):
    original = penjing.load(folder)
    packable = {m.name: (m.rows, m.columns) for m in packable_matrices(original.module)}
    assert packable == matrix_shapes(original.config)
    assert least_bytes(plan_load(open_checkpoint(folder))) < 0.3 * original.base_bytes

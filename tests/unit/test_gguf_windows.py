"""What GGUF files leave to the architecture, and what they say after all."""

from typing import Any

import pytest

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.families import gemma2, gemma3, granite, olmo2
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig

SIZES = {"vocab_size": 128, "context_length": 8192, "embedding_length": 64, "block_count": 6}
SIZES |= {"feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": 2}
SIZES |= {"attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 16, "attention.value_length": 16}


def read(family: Family, **metadata: Any) -> ModelConfig:
    assert family.gguf
    foreign = ForeignConfig(SIZES | {key.replace("__", "."): v for key, v in metadata.items()}, "test")
    hf_config = {"model_type": family.model_types[0]} | family.gguf.config(foreign)
    assert foreign.finish() == ()
    return family.read(ForeignConfig(hf_config, "test"))


def test_the_first_gemma2_files_lack_caps_and_window() -> None:
    config = read(gemma2.FAMILY)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)
    assert config.windows == (4096, None) * 3


def test_only_the_largest_gemma2_scales_by_the_width_for_each_head() -> None:
    assert read(gemma2.FAMILY, block_count=46, embedding_length=128).attention_scale == 32**-0.5
    assert read(gemma2.FAMILY, embedding_length=128).attention_scale == 16**-0.5


def test_every_sixth_layer_of_gemma3_sees_everything_and_is_scaled() -> None:
    linear = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0, "rope__freq_base": 1e6}
    config = read(gemma3.FAMILY, **linear, attention__sliding_window=512)
    assert config.windows == (512,) * 5 + (None,)
    assert config.rope_of(0) == RopeConfig(rope_theta=1e4)
    assert config.rope_of(5) == RopeConfig("linear", rope_theta=1e6, factor=8.0)


def test_a_gemma3_without_a_window_sees_everything() -> None:
    assert read(gemma3.FAMILY, rope__freq_base=1e6).windows == (None,) * 6


@pytest.mark.parametrize("pattern", [3, [True, True, False, True, True, False]])
def test_a_pattern_in_the_file_counts(pattern: Any) -> None:
    said = {"attention__sliding_window": 512, "attention__sliding_window_pattern": pattern}
    assert read(gemma3.FAMILY, **said).windows == (512, 512, None) * 2
    assert read(olmo2.FAMILY, **said).windows == (512, 512, None) * 2


@pytest.mark.parametrize("pattern", ["abc", 0, [True]])
def test_an_impossible_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(InputError, match=r"sliding_window_pattern|names 1 layer types for 6 layers"):
        read(gemma3.FAMILY, attention__sliding_window=512, attention__sliding_window_pattern=pattern)


def test_an_olmo2_without_a_window_is_no_olmo3() -> None:
    assert read(olmo2.FAMILY).local_rope is None
    assert read(olmo2.FAMILY, attention__sliding_window=512).local_rope is not None


def test_a_granite_that_turns_nothing_is_refused() -> None:
    assert read(granite.FAMILY, logit_scale=8.0).attention_scale == 0.25
    with pytest.raises(UnsupportedError, match="finetuned"):
        read(granite.FAMILY, logit_scale=8.0, rope__scaling__finetuned=False)

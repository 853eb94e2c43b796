"""GGML blocks come out of `dequantize` as gguf's own reference computes them, bit for bit."""

import gguf
import numpy as np
import pytest
import torch

from penjing.errors import InputError, UnsupportedError
from penjing.packed.ggml.blocks import TYPES, block_size, packed_nbytes
from penjing.packed.ggml.decode import DECODERS, SLAB_WEIGHTS, dequantize


def test_every_type_that_headers_may_name_has_a_decoder():
    assert tuple(DECODERS) == TYPES


QUANTISABLE = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def assert_same_bits(got: torch.Tensor, expected: np.ndarray) -> None:
    got_bits, expected_bits = got.numpy().view(np.int32), expected.astype(np.float32).view(np.int32)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(got.numpy()), nan)
    assert np.array_equal(got_bits[~nan], expected_bits[~nan])


@pytest.mark.parametrize("type_name", DECODERS)
def test_any_bytes_decode_as_the_reference_decodes_them(type_name: str):
    weights, nbytes = block_size(type_name)
    raw = np.random.default_rng(1).integers(0, 256, size=(29, 3 * nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[type_name])
    assert_same_bits(dequantize(torch.from_numpy(raw).view(-1), type_name, (29, 3 * weights)), expected)


@pytest.mark.parametrize("type_name", QUANTISABLE)
def test_quantised_weights_come_back_near_what_they_were(type_name: str):
    weights = np.random.default_rng(2).standard_normal((8, 128)).astype(np.float32)
    packed = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[type_name])
    raw = torch.from_numpy(np.ascontiguousarray(packed).view(np.uint8).reshape(-1))
    got = dequantize(raw, type_name, (8, 128))
    assert_same_bits(got, gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[type_name]))
    assert np.abs(got.numpy() - weights).max() < 0.5


def test_a_tensor_larger_than_a_slab_decodes_whole():
    rows = SLAB_WEIGHTS // 256 + 3
    raw = np.random.default_rng(3).integers(0, 256, size=(rows, 8 * 34), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
    assert_same_bits(dequantize(torch.from_numpy(raw).view(-1), "Q8_0", (rows, 256)), expected)


@pytest.mark.parametrize("type_name", DECODERS)
def test_bytes_at_an_odd_address_decode_alike(type_name: str):
    weights, nbytes = block_size(type_name)
    raw = torch.randint(0, 256, (1 + nbytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    moved, still = raw[1:], raw[1:].clone()
    got = dequantize(moved, type_name, (weights,))
    assert torch.equal(got.view(torch.int32), dequantize(still, type_name, (weights,)).view(torch.int32))


def test_another_output_dtype_is_the_float32_result_rounded_once():
    raw = torch.arange(4 * 34, dtype=torch.uint8)
    exact = dequantize(raw, "Q8_0", (2, 64))
    assert torch.equal(
        dequantize(raw, "Q8_0", (2, 64), out_dtype=torch.bfloat16).view(torch.int16),
        exact.to(torch.bfloat16).view(torch.int16),
    )


@pytest.mark.parametrize("shape", [(0, 256), (4, 0), (0,)])
@pytest.mark.parametrize("type_name", DECODERS)
def test_an_empty_tensor_is_empty(type_name: str, shape: tuple[int, ...]):
    assert dequantize(torch.empty(0, dtype=torch.uint8), type_name, shape).shape == shape


def test_rows_that_do_not_divide_into_blocks_are_refused():
    with pytest.raises(InputError, match=r"48 weights.*Q4_0 blocks of 32"):
        packed_nbytes("Q4_0", (4, 48))


def test_too_few_bytes_are_refused():
    with pytest.raises(InputError, match="is 36 bytes, but 35"):
        dequantize(torch.zeros(35, dtype=torch.uint8), "Q4_0", (2, 32))


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="Q8_K can't be dequantised"):
        dequantize(torch.zeros(292, dtype=torch.uint8), "Q8_K", (256,))

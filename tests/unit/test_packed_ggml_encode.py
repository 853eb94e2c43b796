"""Encoded GGML blocks give back, through both decoders, what went into them."""

import gguf
import pytest
import torch

from penjing.errors import UnsupportedError
from penjing.packed.ggml.blocks import block_size
from penjing.packed.ggml.decode import dequantize
from penjing.packed.ggml.encode import FORMATS, BlockParts, block_format, encode


def random_parts(type_name, blocks=40):
    form, generator = FORMATS[type_name], torch.Generator().manual_seed(1)

    def whole(low, high, shape, dtype):
        return torch.randint(low, high + 1, shape, generator=generator).to(dtype)

    weights, _ = block_size(type_name)
    lowest = -form.largest_step if form.signed else 0
    return BlockParts(
        codes=whole(0, form.max_code, (blocks, weights), torch.uint8),
        factor=torch.randn(blocks, 1, generator=generator).half(),
        minimum_factor=torch.randn(blocks, 1, generator=generator).half(),
        steps=whole(lowest, form.largest_step, (blocks, form.groups), torch.int8),
        minimums=whole(0, form.largest_step, (blocks, form.groups), torch.uint8),
    )


def expected(type_name, parts):
    """weight = step · (code - zero), or step · code - minimum."""
    form = FORMATS[type_name]
    codes = parts.codes.float().unflatten(1, (form.groups, form.group))
    if form.largest_step:
        step = (parts.factor.float() * parts.steps.float()).unsqueeze(2)
        minimum = (parts.minimum_factor.float() * parts.minimums.float()).unsqueeze(2)
    else:
        step, minimum = parts.factor.float().unsqueeze(2), -parts.minimum_factor.float().unsqueeze(2)
    values = step * codes - minimum if form.zero is None else step * (codes - form.zero)
    return values.flatten(1)


@pytest.mark.parametrize("type_name", FORMATS)
def test_blocks_hold_what_was_given(type_name):
    parts = random_parts(type_name)
    blocks = encode(type_name, parts)
    weights, nbytes = block_size(type_name)
    assert blocks.shape == (len(parts.codes), nbytes)
    decoded = dequantize(blocks.flatten(), type_name, (len(parts.codes), weights))
    assert torch.equal(decoded, expected(type_name, parts))


@pytest.mark.parametrize("type_name", FORMATS)
def test_the_gguf_package_reads_the_same_from_them(type_name):
    parts = random_parts(type_name)
    blocks = encode(type_name, parts)
    theirs = gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType[type_name])
    assert torch.equal(torch.from_numpy(theirs).view(len(blocks), -1), expected(type_name, parts))


def test_a_type_that_is_not_written_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="IQ3_S"):
        block_format("IQ3_S")

"""The affine layout packs, counts and unpacks as its formula says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penjing.errors import InputError, UnsupportedError
from penjing.packed import bits, planes
from penjing.packed.affine import AffineTensor
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.specs import spec_from_json
from penjing.shrink.rounding import round_nearest


def random_codes(rows, columns, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 1 << width, (rows, columns), generator=generator, dtype=torch.uint8)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(planes.PLANES)), st.integers(0, 5), st.integers(0, 200), st.integers(0, 9))
def test_unpacking_gives_back_what_was_packed(width, rows, columns, seed):
    codes = random_codes(rows, columns, width, seed)
    packed = bits.pack(codes, width)
    assert packed.shape == (rows, planes.row_bytes(columns, width))
    assert torch.equal(bits.unpack(packed, columns, width), codes)


@pytest.mark.parametrize("width", sorted(planes.PLANES))
def test_a_width_that_is_a_multiple_of_eight_takes_exactly_its_bits(width):
    assert planes.row_bytes(576, width) == 576 * width // 8


def test_a_code_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="16 does not fit in 4 bits"):
        bits.pack(torch.tensor([[16]], dtype=torch.uint8), 4)


def test_a_width_without_a_layout_is_refused():
    with pytest.raises(InputError, match="7 bits are not supported"):
        planes.row_bytes(8, 7)


@pytest.mark.parametrize("columns", [32, 64, 96, 160, 576, 100, 7])
@pytest.mark.parametrize("group", [0, 32, 64, 128, 256])
@pytest.mark.parametrize("width", [2, 3, 4, 5, 6, 8])
def test_dequantised_weights_follow_the_documented_formula(width, group, columns):
    spec = AffineSpec(width, group)
    codes = random_codes(5, columns, width)
    groups = spec.groups(columns)
    parts = {
        "codes": bits.pack(codes, width),
        "scale": random_codes(5, groups, 8, 1),
        "zero_point": random_codes(5, groups, 8, 2),
        "row_scale": torch.rand(5, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16),
    }
    tensor = AffineTensor(spec, (5, columns), parts)
    weights = tensor.dequantize()
    size = group or columns
    for r in range(5):
        for c in range(columns):
            g = c // size
            zero = float(parts["zero_point"][r, g]) * (2**width - 1) / 255
            expected = (
                float(parts["row_scale"][r]) * float(parts["scale"][r, g]) * (float(codes[r, c]) - zero)
            )
            assert float(weights[r, c]) == pytest.approx(expected, rel=1e-5, abs=1e-3)
    assert tensor.nbytes == sum(part.nbytes for part in parts.values())


def test_single_rows_unpack_to_the_same_weights_as_the_whole():
    packed = round_nearest(torch.randn(40, 96, generator=torch.Generator().manual_seed(0)), AffineSpec(3, 32))
    rows = torch.tensor([7, 0, 39, 7])
    assert torch.equal(packed.dequantize(rows), packed.dequantize()[rows])


def test_four_bits_in_groups_of_64_take_four_and_a_quarter_bits_and_a_row_scale():
    assert AffineSpec(4, 64).nbytes(10, 640) * 8 == 10 * 640 * 4.25 + 10 * 16


@pytest.mark.parametrize("bad", [{"bits": 7, "group_size": 64}, {"bits": 4, "group_size": 48}])
def test_a_grid_that_does_not_exist_is_refused(bad):
    with pytest.raises(InputError):
        AffineSpec(**bad)


def test_a_spec_survives_its_json():
    spec = AffineSpec(5, 128)
    assert spec_from_json(spec.to_json()) == spec


def test_an_unknown_scheme_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="trellis"):
        spec_from_json({"scheme": "trellis", "bits": 2})


def test_an_unknown_field_of_a_scheme_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="rotation"):
        spec_from_json(AffineSpec(4, 64).to_json() | {"rotation": 1})


def test_parts_of_the_wrong_shape_are_refused():
    packed = round_nearest(torch.ones(4, 64), AffineSpec(4, 32))
    with pytest.raises(InputError, match="scale must be"):
        AffineTensor(packed.spec, packed.shape, dict(packed.parts) | {"scale": torch.zeros(4, 1).byte()})

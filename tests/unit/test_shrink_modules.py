"""Any module is shrunk on its own code, by what a run of it shows."""

import json

import pytest
import torch
from tests.unit.small_modules import MODULES, RecurrentLanguageModel, make_batches, make_module
from torch import nn

import penjing
from penjing.errors import InputError
from penjing.model.matrix_form import MatrixForm
from penjing.model.packed_parameter import packed_parameters
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.modules.calls import call, main_output
from penjing.shrink.modules.curvature import measure_curvature
from penjing.shrink.modules.objective import find_objective
from penjing.shrink.modules.parameters import find_packable
from penjing.shrink.modules.waves import round_module
from penjing.shrink.rounding import round_nearest


@pytest.fixture(scope="module", params=MODULES)
def shrunk(request):
    name = request.param
    module, batches, settings = make_module(name), make_batches(name), MODULES[name][2]
    return name, module, batches, penjing.shrink(module, batches, to=0.4, **settings)


def run(name, module, batch):
    with torch.no_grad():
        return MODULES[name][2].get("outputs", main_output)(call(module.eval(), batch))


def test_the_size_is_kept_to_and_most_of_the_quality(shrunk):
    _, _, _, result = shrunk
    assert result.nbytes <= 0.4 * result.base_bytes
    assert result.kept.value > 0.9 and result.layouts


def test_the_original_stays_as_it_was(shrunk):
    name, module, batches, _ = shrunk
    assert not packed_parameters(module)
    assert all(not p.requires_grad or p.grad is None for p in module.parameters())
    assert torch.equal(run(name, module, batches[0]), run(name, make_module(name), batches[0]))


def test_a_saved_folder_has_the_promised_bytes_and_gives_equal_outputs(shrunk, tmp_path):
    name, _, batches, result = shrunk
    assert result.save(tmp_path / "out") == result.nbytes
    again = penjing.load_module(make_module(name), tmp_path / "out")
    assert torch.equal(run(name, again, batches[1]), run(name, result.module, batches[1]))


def test_weights_held_unpacked_give_equal_outputs(shrunk):
    name, _, batches, result = shrunk
    packed = run(name, result.module, batches[1])
    result.keep_float()
    held = run(name, result.module, batches[1])
    result.keep_float(False)
    assert torch.equal(packed, held)


def test_a_rerun_gives_equal_bytes(shrunk):
    name, _, _, result = shrunk
    again = penjing.shrink(make_module(name), make_batches(name), to=0.4, **MODULES[name][2])
    first, second = packed_parameters(result.module), packed_parameters(again.module)
    assert first.keys() == second.keys()
    for parameter, packed in first.items():
        for part, tensor in packed.packed.parts.items():
            assert torch.equal(tensor, second[parameter].packed.parts[part]), (parameter, part)


@pytest.mark.parametrize("name", ["an LSTM", "a state model", "a ViT", "a U-Net", "experts at once"])
def test_rounding_by_inputs_loses_less_than_rounding_to_nearest(name):
    module, batches = make_module(name).eval(), make_batches(name, 24)
    find = MODULES[name][2].get("outputs", main_output)
    objective = find_objective(MODULES[name][2].get("metric", "kl"))
    packable = find_packable(module, batches[0]).packable
    generator = torch.Generator().manual_seed(0)
    curvature = measure_curvature(module, packable, batches[:16], objective, find, generator)
    specs = {each.name: AffineSpec(3, 64) for each in packable}
    calibrated, _ = round_module(module, packable, specs, batches[:16], curvature)
    nearest = make_module(name).eval()
    with torch.no_grad():
        for each in packable:
            weight = round_nearest(each.weight_RC, specs[each.name]).dequantize()
            nearest.get_parameter(each.name).copy_(each.form.write(weight))

    def loss(candidate):
        units = [
            objective.compare(run(name, module, batch), run(name, candidate, batch)) for batch in batches[16:]
        ]
        return float(torch.cat(units)[:, 0].sum())

    assert loss(calibrated) < 0.95 * loss(nearest)


class TestWhatIsFound:
    def test_recurrent_and_attention_weights_are_packed(self):
        lstm = find_packable(make_module("an LSTM").eval(), make_batches("an LSTM")[0]).packable
        assert {"lstm.weight_ih_l0", "lstm.weight_hh_l1"} <= {each.name for each in lstm}
        vit = find_packable(make_module("a ViT").eval(), make_batches("a ViT")[0]).packable
        assert "layers.layers.0.self_attn.in_proj_weight" in {each.name for each in vit}

    def test_a_tied_weight_is_one_with_two_names_and_both_uses(self):
        found = find_packable(make_module("a tied LSTM").eval(), make_batches("a tied LSTM")[0]).packable
        tied = next(each for each in found if each.name == "embed.weight")
        assert tied.names == ("embed.weight", "head.weight") and tied.looked_up and tied.multiplied
        assert "head.weight" not in {each.name for each in found}

    def test_bare_parameters_are_read_the_way_they_are_multiplied(self):
        found = find_packable(make_module("a state model"), make_batches("a state model")[0]).packable
        forms = {each.name: each.form for each in found}
        assert forms["key"].transposed and not forms["value"].transposed

    @pytest.mark.parametrize("name", ["experts one by one", "experts at once"])
    def test_experts_are_a_matrix_each(self, name):
        forms = {e.name: e.form for e in find_packable(make_module(name), make_batches(name)[0]).packable}
        assert forms["up"] == MatrixForm((4, 64, 96), stacked=True, transposed=True)
        assert forms["down"] == MatrixForm((4, 64, 96), stacked=True)

    def test_what_cannot_be_packed_is_named(self):
        result = penjing.shrink(
            make_module("a U-Net"), make_batches("a U-Net"), to=0.5, **MODULES["a U-Net"][2]
        )
        assert set(result.left_out) == {"first.weight", "up.weight"}
        assert any("first.weight" in notice for notice in result.notices)

    def test_a_router_without_a_gradient_stays_a_float_and_is_named(self):
        name = "experts one by one"
        result = penjing.shrink(make_module(name), make_batches(name), to=0.3)
        assert "router.weight" not in result.layouts
        assert any("router.weight" in notice and "no gradient" in notice for notice in result.notices)

    def test_an_expert_that_nothing_went_to_is_named(self):
        name = "experts one by one"
        result = penjing.shrink(make_module(name), make_batches(name), to=0.3)
        assert any("up[3]" in notice and "nearest" in notice for notice in result.notices)


class TestThePromise:
    def test_the_smallest_size_that_keeps_a_share_is_found(self):
        module, batches = make_module("a ViT"), make_batches("a ViT", 40)
        result = penjing.shrink(module, batches, keep="90%")
        assert result.holds and result.kept.low >= 0.9 and result.ratio < 0.5
        assert {trial.split for trial in result.trials} == {"search", "report"}

    def test_a_share_that_no_size_keeps_does_not_hold_and_is_said(self):
        module, batches = make_module("a ViT"), make_batches("a ViT", 40)
        result = penjing.shrink(module, batches, keep="99.9%", to=0.16)
        assert result.holds is False
        assert any("held" in notice for notice in result.notices)

    def test_a_function_of_both_outputs_can_judge(self):
        def same_class(original, shrunk):
            return (original.argmax(-1) == shrunk.argmax(-1)).double()

        result = penjing.shrink(make_module("a ViT"), make_batches("a ViT", 40), to=0.3, metric=same_class)
        assert result.metric == "own" and 0.5 < result.kept.value <= 1

    def test_the_result_is_told_as_json(self):
        result = penjing.shrink(make_module("a ViT"), make_batches("a ViT"), to=0.4)
        told = json.loads(json.dumps(result.to_json()))
        assert told["bytes"] == result.nbytes and told["kept"]["value"] == result.kept.value


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({}, "say how small"),
            ({"to": "tiny"}, "tiny"),
            ({"to": "1/1000"}, "smallest"),
            ({"keep": "120%"}, "120%"),
            ({"to": 0.4, "metric": "bleu"}, "bleu"),
            ({"to": 0.4, "seed": -1}, "seed"),
        ],
    )
    def test_arguments_that_cannot_be_meant(self, arguments, words):
        with pytest.raises(InputError, match=words):
            penjing.shrink(make_module("a ViT"), make_batches("a ViT"), **arguments)

    def test_a_module_without_calibration_data(self):
        with pytest.raises(InputError, match="calibration data"):
            penjing.shrink(nn.Linear(64, 64), to=0.5)

    def test_too_few_batches(self):
        with pytest.raises(InputError, match="1 batches, and at least 2"):
            penjing.shrink(nn.Linear(64, 64), [torch.randn(2, 64)], to=0.5)

    def test_a_module_without_matrices(self):
        with pytest.raises(InputError, match="nothing to shrink"):
            penjing.shrink(nn.LayerNorm(64), [torch.randn(2, 64)] * 4, to=0.5)

    def test_outputs_without_a_tensor(self):
        class Silent(nn.Linear):
            def forward(self, x):
                return {"answer": str(super().forward(x))}

        with pytest.raises(InputError, match="outputs="):
            penjing.shrink(Silent(64, 64), [torch.randn(2, 64)] * 4, to=0.5)

    def test_a_forward_pass_without_gradients(self):
        class Fixed(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    return super().forward(x)

        with pytest.raises(InputError, match="differentiated"):
            penjing.shrink(Fixed(64, 64), [torch.randn(2, 64)] * 4, to=0.5)

    def test_a_module_that_is_packed_already(self):
        result = penjing.shrink(make_module("a ViT"), make_batches("a ViT"), to=0.4)
        with pytest.raises(InputError, match="packed already"):
            penjing.shrink(result.module, make_batches("a ViT"), to=0.3)

    def test_a_failed_call_leaves_training_mode_and_gradients_as_they_were(self):
        module = RecurrentLanguageModel().train()
        module.head.weight.requires_grad_(False)
        with pytest.raises(InputError):
            penjing.shrink(module, make_batches("an LSTM"), to="1/1000")
        assert module.training and module.lstm.training
        assert module.embed.weight.requires_grad and not module.head.weight.requires_grad


class TestDamagedFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        name = "a ViT"
        penjing.shrink(make_module(name), make_batches(name), to=0.4).save(tmp_path / "out")
        return tmp_path / "out"

    def describe(self, folder, change):
        path = folder / "module.json"
        described = json.loads(path.read_text(encoding="utf-8"))
        change(described)
        path.write_text(json.dumps(described), encoding="utf-8")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda d: d.update(format_version=2), "format version 2"),
            (lambda d: d.pop("packed"), "malformed"),
            (lambda d: d["packed"]["patches.weight"].update(shape=[64, 3, 8, 9]), "patches.weight"),
            (lambda d: d["packed"]["patches.weight"].update(shape=[64, 3, 8, -8]), "shape"),
            (lambda d: d["packed"]["patches.weight"].update(dtype="int8"), "int8"),
            (lambda d: d["packed"]["patches.weight"].pop("layout"), "layout"),
            (lambda d: d["packed"]["patches.weight"]["layout"].update(bits=7), "7-bit"),
            (lambda d: d["packed"].update(missing=d["packed"]["patches.weight"]), "missing.codes"),
            (lambda d: d["packed"].pop("patches.weight"), "patches.weight"),
        ],
    )
    def test_a_description_that_does_not_fit_is_refused_and_the_module_stays(self, folder, change, words):
        self.describe(folder, change)
        module = make_module("a ViT")
        with pytest.raises(penjing.PenjingError, match=words):
            penjing.load_module(module, folder)
        assert not packed_parameters(module)

    def test_another_module_is_refused(self, folder):
        with pytest.raises(InputError, match="doesn't fit the module"):
            penjing.load_module(make_module("a Conv1d network"), folder)

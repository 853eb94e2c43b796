"""The comparison with other quantisers: what is given to them, what is counted, and what is run again."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from benchmarks import cells, shrink, small_models
from benchmarks.cells import Bench, Cell, PeerError, Remembering
from benchmarks.importance import importance
from benchmarks.peers import exchange
from benchmarks.peers.exchange import Quantised, Task
from benchmarks.texts import FILES
from safetensors.torch import load_file
from tests.e2e.models import write_model, write_text

import penjing
from penjing.evaluate.compare import compare

IDS_NL = torch.arange(64).view(2, 32)
OURS = Cell("tiny", "penjing", "one-shot", 4, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def bench(folder: Path, tmp_path: Path) -> Bench:
    texts, work = tmp_path / "texts", tmp_path / "work"
    texts.mkdir()
    work.mkdir()
    for number, name in enumerate(FILES):
        write_text(texts / name, documents=20, words=600, seed=number)
    models = {"tiny": folder}
    return Bench(work, tmp_path / "envs", texts, models, tokens=1024, effort="fast")


def task(folder: Path, bits: int = 4, group: int = 32) -> Task:
    return Task(folder, IDS_NL, "method", bits, group, {})


def test_a_cell_is_made_and_judged_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench.measure(OURS)
    monkeypatch.setattr(cells, "make_ours", None)
    monkeypatch.setattr(Bench, "_judge", None)
    assert bench.measure(OURS) == first


def test_with_more_tokens_a_cell_is_judged_again_and_not_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.measure(OURS)
    monkeypatch.setattr(cells, "make_ours", None)
    more = Bench(bench.work, bench.envs, bench.texts, bench.models, tokens=2048, effort=bench.effort)
    second = more.measure(OURS)
    assert second["stamp"]["made"] == first["stamp"]["made"]
    assert second["figures"]["overall"]["tokens"] > first["figures"]["overall"]["tokens"]


def test_our_one_shot_rounds_every_linear_layer_and_leaves_the_embedding_alone(
    bench: Bench, folder: Path
) -> None:
    bench.measure(OURS)
    original, small = penjing.load(folder), penjing.load(bench.work / "tiny-penjing-one-shot-4-bit-g32/small")
    assert torch.equal(original.module.model.embed_tokens.weight, small.module.model.embed_tokens.weight)
    kinds = small.stored.bytes_by_kind()
    linears = sum(
        m.weight.numel() for n, m in original.module.named_modules() if isinstance(m, torch.nn.Linear)
    )
    assert any("4-bit" in kind for kind in kinds), kinds
    assert small.stored.nbytes < original.stored.nbytes - linears


def test_a_peer_that_fails_is_named_with_its_log_and_the_others_go_on(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    python = bench.envs / "broken/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho no memory; exit 3\n", encoding="utf-8")
    python.chmod(0o755)
    runner = Path(exchange.__file__).with_name("with_broken.py")
    broken = Cell("tiny", "broken", "any", 4, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "_making", lambda self, cell: {"cell": cell.name, "runner": runner.name})
        with pytest.raises(PeerError, match=r"broken.*log\.txt"):
            bench.measure(broken)
        rows = shrink.measure(bench, [broken, OURS])
    assert [cell for cell, _ in rows] == [OURS]
    assert "log.txt" in capsys.readouterr().out
    log = bench.work / "tiny-broken-any-4-bit-g32/log.txt"
    assert log.read_text(encoding="utf-8") == "no memory\n"


def test_a_peers_folder_is_the_original_in_float32_with_its_weights(folder: Path, tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    zeros = torch.zeros(64, 64)
    exchange.write_folder(task(folder), Quantised({name: zeros}, [name], 4), tmp_path / "out")
    before, after = (load_file(f / exchange.WEIGHTS) for f in (folder, tmp_path / "out"))
    assert set(before) == set(after)
    for key, tensor in after.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, zeros if key == name else before[key].float())
    assert penjing.load(tmp_path / "out").tokenizer.encode("a leaf")


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [({"model.extra": torch.zeros(1)}, "no tensors"), ({"model.norm.weight": torch.zeros(3)}, "shape")],
)
def test_a_peer_that_returns_other_tensors_is_refused(
    folder: Path, tmp_path: Path, weights: dict[str, torch.Tensor], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        exchange.write_folder(task(folder), Quantised(weights, [], 0), tmp_path / "out")


def test_bytes_are_codes_scales_and_zero_points_and_16_bits_for_the_rest(folder: Path) -> None:
    found = Quantised({}, ["packed"], zero_bits=4)
    sizes = {"packed": 64 * 64, "kept": 10}
    assert exchange.stored_bytes(sizes, found, task(folder)) == 64 * 64 // 2 + 128 * 20 // 8 + 20


def test_the_importance_of_a_column_is_its_mean_square_under_llama_cpps_name(folder: Path) -> None:
    model = penjing.load(folder)
    found = importance(model, IDS_NL)
    block = model.module.blocks[0]
    embedded = model.module.model.embed_tokens(IDS_NL)
    expected = block.input_layernorm(embedded).flatten(0, 1).square().mean(0)
    np.testing.assert_allclose(found["blk.0.attn_q.weight"], expected.numpy(), rtol=1e-5)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    assert len(found) == 2 * 7 and names.get_name("model.layers.1.mlp.down_proj") == "blk.1.ffn_down"
    assert "blk.1.ffn_down.weight" in found


def test_a_remembering_original_gives_the_same_figures(bench: Bench, folder: Path) -> None:
    original, other = penjing.load(folder), penjing.load(write_model(bench.work / "other", bos_token_id=1))
    texts = {"text": ["the root of a tree and the moss on a stone " * 40] * 8}
    options = {"tokens": 512, "choice_items": 8}
    plain = compare(original.module, other.module, original.tokenizer, texts, **options)
    remembering = Remembering(original.module)
    for _ in range(2):
        assert compare(remembering, other.module, original.tokenizer, texts, **options) == plain


def test_cells_have_names_of_their_own() -> None:
    names = [cell.name for cell in shrink.all_cells()]
    assert len(names) == len(set(names)) == len({name.replace("/", "-") for name in names})


def test_a_stopped_training_ends_where_an_unbroken_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    monkeypatch.setattr(small_models, "CONFIGS", {"mini": ("llama", fields)})
    monkeypatch.setattr(small_models, "builtin_documents", lambda: ["a leaf in the rain"] * 20)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number, name in enumerate(FILES):
        write_text(texts / name, documents=20, words=100, seed=number)
    recipe = small_models.Recipe(tokens=20 * 32, batch=2, passage=16, warm_up=2, save_every=4)

    small_models.train("mini", texts, tmp_path / "whole", recipe)
    steps = []

    def stop(*arguments):
        steps.append(arguments)
        if len(steps) == 10:
            raise KeyboardInterrupt
        return step(*arguments)

    step = small_models._step
    monkeypatch.setattr(small_models, "_step", stop)
    with pytest.raises(KeyboardInterrupt):
        small_models.train("mini", texts, tmp_path / "parts", recipe)
    small_models.train("mini", texts, tmp_path / "parts", recipe)
    assert len(steps) == 10 + 20 - 8  # the state after eight steps was kept
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_held_out_documents_are_never_trained_on() -> None:
    documents = [str(number) for number in range(25)]
    held, trained = small_models.held_out_documents(documents), small_models.training_documents(documents)
    assert held == ["0", "10", "20"] and sorted(held + trained) == sorted(documents)


def test_a_changed_stamp_makes_a_figure_anew(tmp_path: Path) -> None:
    file, made = tmp_path / "made.json", []

    def make() -> dict[str, int]:
        made.append(1)
        return {"bytes": len(made)}

    for stamp in ({"seed": 0}, {"seed": 0}, {"seed": 1}):
        cells.remembered(file, stamp, make)
    assert json.loads(file.read_text(encoding="utf-8"))["bytes"] == len(made) == 2

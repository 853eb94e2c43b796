"""What each verb does with a good model.

JSON is checked in real processes, where everything that is on standard output can be seen.
"""

import io
import json
import sys

import pytest
import torch
from tests.e2e.command import run
from tests.e2e.models import write_model

from penjing.engine.generate import generate
from penjing.formats.open import open_checkpoint


def answer_lines(call, monkeypatch, lines, *arguments):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode("utf-8"))))
    return call("chat", *arguments, "--temperature", 0, "--max-tokens", 8)


def test_show_prints_one_json_object(tiny):
    done = run("show", tiny, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    stored = open_checkpoint(tiny).tensors.values()
    assert facts["bytes"] == sum(tensor.nbytes for tensor in stored) == facts["base_bytes"]
    assert facts["parameters"] == facts["bytes"] // 2 == sum(facts["parameters_by_group"].values())
    assert facts["bits_per_weight"] == 16
    assert (facts["layers"], facts["hidden_size"], facts["context"]) == (2, 64, 256)
    assert facts["tokenizer"]["ends"] == ["</s>", "<|end|>"] and facts["chat_template"] and facts["tied_head"]


def test_show_says_it_in_words(call, tiny):
    ended = call("show", tiny)
    assert ended.code == 0 and ended.err == ""
    for words in ("LlamaForCausalLM", "16.00 bits per weight", "full in 2 layers", "tied to the embedding"):
        assert words in ended.out


def test_show_of_a_shrunk_model_counts_packed_bytes(call, shrinking, small):
    facts = json.loads(call("show", small, "--json").out)
    assert facts["bytes"] == json.loads(shrinking[0].stdout)["bytes"]
    assert any("bit" in storage for storage in facts["bytes_by_storage"])


def test_show_lists_what_is_odd(call, tmp_path):
    model = write_model(tmp_path / "odd", some_unknown_note="x", chat=False)
    ended = call("show", model)
    assert "some_unknown_note" in ended.out and "raw text" in ended.out


def test_chat_answers_on_standard_output_alone(tiny):
    done = run("chat", tiny, "--prompt", "leaf", "--max-tokens", 8, "--temperature", 0)
    as_json = run("chat", tiny, "--prompt", "leaf", "--max-tokens", 8, "--temperature", 0, "--json")
    answer = json.loads(as_json.stdout)
    assert done.returncode == as_json.returncode == 0
    assert done.stdout == answer["text"] + "\n" and done.stderr == as_json.stderr == ""
    assert answer["finish_reason"] in ("stop", "length") and 0 < answer["completion_tokens"] <= 8
    assert answer["prompt_tokens"] > 0 and answer["tokens_per_second"] > 0


def test_chat_repeats_itself_with_a_seed_and_not_without(call, tiny):
    ask = ("chat", tiny, "--prompt", "leaf", "--max-tokens", 24, "--temperature", 2)
    assert call(*ask, "--seed", 7).out == call(*ask, "--seed", 7).out
    assert len({call(*ask).out for _ in range(3)}) > 1


def test_chat_ends_before_a_stop_text(call, tiny):
    ask = ("chat", tiny, "--prompt", "leaf", "--temperature", 0, "--json", "--max-tokens", 16)
    whole = json.loads(call(*ask).out)["text"]
    stopped = json.loads(call(*ask, "--stop", whole[2:4]).out)
    assert stopped["text"] == whole[: whole.index(whole[2:4])] and stopped["finish_reason"] == "stop"


def test_a_conversation_from_a_pipe_remembers_until_it_is_reset(call, monkeypatch, tiny):
    lines = "leaf\n\nwater\n/reset\nleaf\n/exit\nnever read\n"
    ended = answer_lines(call, monkeypatch, lines, tiny)
    once = call("chat", tiny, "--prompt", "leaf", "--temperature", 0, "--max-tokens", 8).out
    assert ended.code == 0 and ended.err == ""
    assert ended.out.startswith(once) and ended.out.endswith(once)
    alone = call("chat", tiny, "--prompt", "water", "--temperature", 0, "--max-tokens", 8).out
    assert ended.out != once + alone + once


def test_a_message_in_a_pipe_that_cannot_be_answered_ends_with_2(call, monkeypatch, tiny):
    ended = answer_lines(call, monkeypatch, "leaf " * 400 + "\n", tiny)
    assert ended.code == 2 and "256" in ended.err


def test_system_instructions_and_raw_text_change_the_prompt(call, tiny):
    ask = ("chat", tiny, "--prompt", "leaf", "--temperature", 0, "--max-tokens", 2, "--json")
    plain, told, raw = (
        json.loads(call(*ask, *more).out)["prompt_tokens"]
        for more in ((), ("--system", "be slow"), ("--raw",))
    )
    assert raw < plain < told


def test_raw_text_is_continued_and_an_answer_begins(call, monkeypatch, tiny):
    told = []

    def recording(*arguments, continues=False, **more):
        told.append(continues)
        return generate(*arguments, continues=continues, **more)

    monkeypatch.setattr("penjing.engine.generate.generate", recording)
    for more in ((), ("--raw",)):
        assert call("chat", tiny, "--prompt", "leaf", "--max-tokens", 2, *more).code == 0
    assert told == [False, True]


def test_a_base_model_continues_raw_text_and_says_so(call, tmp_path):
    base = write_model(tmp_path / "base", chat=False)
    ended = call("chat", base, "--prompt", "the root", "--max-tokens", 4)
    assert ended.code == 0 and ended.out and "base model" in ended.err
    refused = call("chat", base, "--prompt", "the root", "--system", "be slow")
    assert refused.code == 2 and "chat template" in refused.err


def test_shrink_writes_what_it_promised(shrinking, small):
    done, out = shrinking
    promised = json.loads(done.stdout)
    for key in ("out", "bytes", "base_bytes", "ratio", "kept", "kl", "agreement", "holds", "seconds"):
        assert key in promised
    stored = sum(tensor.nbytes for tensor in open_checkpoint(small).tensors.values())
    assert promised["bytes"] == stored <= promised["base_bytes"] / 2
    assert promised["out"] == str(out) and promised["holds"] is None and promised["indicative"] is True
    assert (small / "report.html").read_text(encoding="utf-8").startswith("<!")


def test_shrinking_twice_writes_the_same_bytes(call, tiny, text, small, tmp_path):
    out = tmp_path / "again"
    assert call("shrink", tiny, "-o", out, "--to", "1/2", "--effort", "fast", "--text", text).code == 0
    for name in ("model.safetensors", "config.json", "shrink.json"):
        assert (out / name).read_bytes() == (small / name).read_bytes(), name


def test_all_that_was_tried_stands_beside_the_model(shrinking, small):
    promised = json.loads(shrinking[0].stdout)
    kept = json.loads((small / "shrink.json").read_text(encoding="utf-8"))
    assert kept["bytes"] == promised["bytes"] and kept["tried"] == promised["tried"]
    assert len(kept["predicted"]) > 2 and "model.embed_tokens.weight" in kept["stored_as"]


def test_a_gguf_file_is_shrunk_to_with_its_report_beside_it(call, tiny, text, tmp_path):
    out = tmp_path / "small.gguf"
    ended = call(
        "shrink", tiny, "-o", out, "--as", "gguf", "--to", "1/2", "--effort", "fast", "--text", text, "--json"
    )
    promised = json.loads(ended.out)
    stored = sum(tensor.nbytes for tensor in open_checkpoint(out).tensors.values())
    assert ended.code == 0 and promised["bytes"] == stored <= promised["base_bytes"] / 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.gguf", "small.html", "small.json"]


def test_without_a_goal_sizes_and_what_they_are_expected_to_keep_are_shown(call, tiny, text):
    ended = call("shrink", tiny, "--effort", "fast", "--text", text, "--json")
    points = json.loads(ended.out)["frontier"]
    assert ended.code == 0 and [p["measured"] for p in points].count(True) == 1
    sizes, kept = [p["bytes"] for p in points], [p["kept"] for p in points]
    assert sizes == sorted(sizes, reverse=True) and kept == sorted(kept, reverse=True)
    shown = call("shrink", tiny, "--effort", "fast", "--text", text)
    assert "expected" in shown.out and "measured" in shown.out


def test_a_promise_that_does_not_hold_exits_1_and_still_writes(call, tiny, text, tmp_path):
    out = tmp_path / "lossy"
    goal = ("--to", "0.2", "--keep", "99.9%")
    ended = call("shrink", tiny, "-o", out, *goal, "--effort", "fast", "--text", text)
    assert ended.code == 1 and "does not hold" in ended.out and "indicative" in ended.out
    assert (out / "report.html").exists()


def test_eval_of_one_model(call, tiny, text):
    ended = call("eval", tiny, "--text", text, "--tokens", 1000, "--choice-items", 10, "--json")
    result = json.loads(ended.out)
    assert ended.code == 0 and result["against"] is None
    assert list(result["texts"]) == ["garden.txt"] and result["overall"]["perplexity"] > 1
    assert result["overall"]["kept"] is None


def test_eval_against_the_original(small, tiny, text):
    done = run(
        "eval", small, "--against", tiny, "--text", text, "--tokens", 4000, "--choice-items", 0, "--json"
    )
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["against"] == str(tiny)
    for found in (result["texts"]["garden.txt"], result["overall"]):
        assert {"tokens", "perplexity", "kept", "kl", "agreement", "choice_accuracy"} <= set(found)
        kept = found["kept"]["perplexity"]
        assert kept["low"] <= kept["value"] <= kept["high"]
    assert all(notice in done.stderr for notice in result["notices"])


def test_eval_of_a_model_against_itself_keeps_everything(call, tiny, text):
    ended = call("eval", tiny, "--against", tiny, "--text", text, "--tokens", 4000, "--choice-items", 0)
    assert ended.code == 0
    assert "100.0% (100.0% to 100.0%)" in ended.out


def test_eval_without_text_uses_the_documentation_of_python(call, tiny):
    ended = call("eval", tiny, "--tokens", 500, "--choice-items", 0, "--json")
    assert list(json.loads(ended.out)["texts"]) == ["python documentation"]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_save_unpacks_a_shrunk_model_into_plain_weights(call, small, tmp_path, dtype):
    out = tmp_path / dtype
    ended = call("save", small, "-o", out, "--as", "hf", "--dtype", dtype, "--json")
    tensors = open_checkpoint(out).tensors
    torch_name = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[dtype]
    assert {tensor.dtype for tensor in tensors.values()} == {torch_name}
    assert json.loads(ended.out)["bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    assert "quantization_config" not in json.loads((out / "config.json").read_text(encoding="utf-8"))


def test_a_model_saved_in_float32_computes_what_the_packed_one_did(call, small, tmp_path):
    import penjing

    assert call("save", small, "-o", tmp_path / "plain", "--dtype", "f32").code == 0
    ids, positions = torch.arange(20)[None], torch.arange(20)[None]
    packed, plain = (penjing.load(folder).module(ids, positions) for folder in (small, tmp_path / "plain"))
    assert torch.equal(packed, plain)


def test_save_without_a_dtype_keeps_every_byte(tiny, tmp_path):
    done = run("save", tiny, "-o", tmp_path / "copy", "--json")
    assert (
        json.loads(done.stdout)["bytes"] == 2 * json.loads(run("show", tiny, "--json").stdout)["parameters"]
    )
    before, after = (open_checkpoint(folder) for folder in (tiny, tmp_path / "copy"))
    assert all(torch.equal(before.read(name), after.read(name)) for name in before.tensors)


def test_bench_measures_each_batch(small):
    done = run(
        "bench", small, "--prompt-tokens", 40, "--new-tokens", 4, "--batch", "2,3", "--repeats", 1, "--json"
    )
    values = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert list(values["batch"]) == ["2", "3"]
    for speeds in (values, *values["batch"].values()):
        assert speeds["prefill_tps"] > 0 and speeds["decode_tps"] > 0 and speeds["ttft_ms"] > 0
    assert values["load_seconds"] > 0 and values["peak_rss_mb"] > 10 and values["weight_bytes"] > 0


def test_bench_refuses_lengths_beyond_the_context(call, tiny):
    ended = call("bench", tiny, "--prompt-tokens", 250, "--new-tokens", 7)
    assert ended.code == 2 and "256" in ended.err


def test_bench_in_words(call, tiny):
    ended = call("bench", tiny, "--prompt-tokens", 8, "--new-tokens", 2, "--batch", "1", "--repeats", 1)
    assert ended.code == 0 and "decode tokens/s" in ended.out and "most memory" in ended.out

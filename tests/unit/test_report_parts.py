"""What each part of the report shows, as data, before it becomes HTML."""

from dataclasses import replace

import pytest
from tests.unit.report_fakes import MODULES, evaluation, ledger, shrunk, text_result, trial

from penjing.evaluate.result import Interval
from penjing.model.ledger import Entry, Ledger
from penjing.shrink.report import frontier
from penjing.shrink.report.answers import compare_answers
from penjing.shrink.report.heatmap import heat_map, step_of
from penjing.shrink.report.losses import losses
from penjing.shrink.report.matrices import place_of
from penjing.shrink.report.summary import size_bars, summary
from penjing.shrink.result import Answer, Asked


class TestFrontier:
    def test_every_trial_is_a_point_inside_the_plot(self) -> None:
        result = shrunk()
        for chart in (frontier.divergence_chart(result), frontier.perplexity_chart(result)):
            assert chart is not None
            assert len(chart.points) == 3
            assert all(frontier.LEFT <= point.x <= frontier.RIGHT for point in chart.points)
            assert all(frontier.TOP <= point.y <= frontier.BOTTOM for point in chart.points)
            assert frontier.LEFT <= chart.original_x <= frontier.RIGHT

    def test_the_chosen_point_is_drawn_last_so_that_nothing_covers_it(self) -> None:
        result = shrunk()
        chart = frontier.divergence_chart(replace(result, trials=result.trials[::-1]))
        assert chart and [point.kind for point in chart.points].index("chosen") == 2

    def test_a_predicted_divergence_of_zero_has_no_place_on_a_logarithmic_axis(self) -> None:
        chart = frontier.divergence_chart(shrunk())
        assert chart and len(chart.curve.split()) == 2

    def test_one_trial_alone_is_enough(self) -> None:
        alone = shrunk(trials=(trial(5_000_000, 0.03, 0.97, chosen=True),), predicted=())
        for chart in (frontier.divergence_chart(alone), frontier.perplexity_chart(alone)):
            assert chart and len(chart.points) == 1 and chart.curve == ""

    def test_without_trials_and_prediction_there_is_no_chart(self) -> None:
        nothing = shrunk(trials=(), predicted=())
        assert frontier.divergence_chart(nothing) is None
        assert frontier.perplexity_chart(nothing) is None

    def test_only_measured_intervals_are_drawn(self) -> None:
        result = shrunk(trials=(trial(5_000_000, 0.2, 0.9, perplexity_kept=Interval(0.9, None, None)),))
        for chart in (frontier.divergence_chart(result), frontier.perplexity_chart(result)):
            assert chart and chart.points[0].whisker is None

    def test_the_interval_of_kl_belongs_to_the_reports_own_measurement(self) -> None:
        chart = frontier.divergence_chart(shrunk())
        assert chart
        assert {point.kind: point.whisker is not None for point in chart.points} == {
            "missed": False,
            "held": False,
            "chosen": True,
        }

    def test_the_share_that_was_asked_for_is_a_line_between_the_points_that_hold_and_those_that_do_not(
        self,
    ) -> None:
        chart = frontier.perplexity_chart(shrunk())
        assert chart and chart.keep_y is not None
        heights = {point.kind: point.y for point in chart.points}
        assert heights["held"] < chart.keep_y < heights["missed"]  # y grows downwards

    def test_the_table_has_the_trials_by_size_with_their_split(self) -> None:
        rows = frontier.trial_rows(shrunk().trials)
        assert [(row.size, row.outcome, row.split) for row in rows] == [
            ("3.0 MB", "does not hold", "search"),
            ("5.0 MB", "holds", "report"),
            ("6.0 MB", "holds", "search"),
        ]


class TestHeatMap:
    def test_layers_are_rows_and_kinds_are_columns_in_the_order_of_computation(self) -> None:
        found = heat_map(ledger())
        assert found.kinds == ["q", "down"]
        assert [layer for layer, _ in found.rows] == [0, 1, 2]
        assert all(cell and cell.label == "4.0" for _, cells in found.rows for cell in cells)

    def test_norms_and_biases_are_left_out(self) -> None:
        bias = Entry("model.layers.0.self_attn.q_proj.bias", 10, 40, "float32")
        assert heat_map(Ledger((*ledger().entries, bias))) == heat_map(ledger())

    def test_an_embedding_without_a_head_is_called_both(self) -> None:
        assert [name for name, _ in heat_map(ledger()).outside] == ["embedding and head (one matrix)"]
        head = Entry("lm_head.weight", 1000, 2000, "bfloat16")
        untied = heat_map(Ledger((*ledger().entries, head)))
        assert [name for name, _ in untied.outside] == ["embedding", "head"]

    def test_a_layer_that_lacks_a_matrix_has_an_empty_cell(self) -> None:
        entries = [e for e in ledger().entries if e.name != "model.layers.1.self_attn.q_proj.weight"]
        assert heat_map(Ledger(tuple(entries))).rows[1][1][0] is None

    def test_experts_share_a_cell(self) -> None:
        names = [f"model.layers.0.mlp.experts.{i}.up_proj.weight" for i in range(2)]
        found = heat_map(Ledger((Entry(names[0], 8, 2, "2-bit"), Entry(names[1], 8, 4, "4-bit"))))
        cell = found.rows[0][1][0]
        assert cell and cell.label == "3.0" and "experts.1" in cell.title

    @pytest.mark.parametrize(
        ("bits", "step"), [(2.53, 0), (3.53, 1), (4.53, 2), (5.53, 3), (6.53, 4), (8.53, 5), (16, 6), (32, 6)]
    )
    def test_scales_do_not_lift_a_matrix_into_the_next_colour(self, bits: float, step: int) -> None:
        assert step_of(bits) == step


class TestLosses:
    def test_shares_add_up_by_layer_and_by_kind(self) -> None:
        found = losses(shrunk().divergence, ledger())
        assert found
        for bars in (found.by_layer, found.by_kind):
            assert sum(float(bar.share.rstrip("%")) for bar in bars) == pytest.approx(100, abs=0.5)
            assert max(bar.length for bar in bars) == 1

    def test_layers_come_in_order_after_the_embedding(self) -> None:
        found = losses(shrunk().divergence, ledger())
        assert found and [bar.label for bar in found.by_layer] == ["embedding", "0", "1", "2"]

    def test_a_layer_that_loses_nothing_keeps_its_place(self) -> None:
        found = losses({**shrunk().divergence, MODULES[2]: 0.0, MODULES[3]: 0.0}, ledger())
        assert found and found.by_layer[2].label == "1" and found.by_layer[2].share == "0.0%"

    def test_the_worst_matrix_leads_with_how_it_is_stored(self) -> None:
        found = losses(shrunk().divergence, ledger())
        assert found and len(found.top) == 7
        assert (found.top[0].place, found.top[0].stored_as, found.top[0].bits) == (
            "embedding",
            "8-bit",
            "8.00",
        )

    def test_names_of_weights_and_of_modules_mean_the_same(self) -> None:
        named = {f"{name}.weight": loss for name, loss in shrunk().divergence.items()}
        assert losses(named, ledger()) == losses(shrunk().divergence, ledger())

    def test_no_prediction_gives_no_shares(self) -> None:
        assert losses({}, ledger()) is None
        assert losses(dict.fromkeys(MODULES, 0.0), ledger()) is None


class TestAnswers:
    def test_the_first_word_that_differs_is_parted_off_and_nothing_is_lost(self) -> None:
        found = compare_answers(Answer("q", "the sky is blue today", "the sky was blue"))
        assert (found.original.word, found.shrunk.word) == ("is", "was")
        assert found.original.same + found.original.word + found.original.rest == "the sky is blue today"
        assert found.shrunk.rest == " blue"
        assert not found.same

    def test_an_answer_that_ends_early_has_no_word_there(self) -> None:
        found = compare_answers(Answer("q", "yes", "yes indeed"))
        assert (found.original.word, found.shrunk.word) == ("", "indeed")

    def test_white_space_alone_is_no_difference(self) -> None:
        assert compare_answers(Answer("q", "a  b\n", "a b")).same

    def test_in_chinese_a_single_character_is_found(self) -> None:
        found = compare_answers(Answer("q", "天空是蓝色的", "天空是灰色的"))
        assert (found.original.word, found.shrunk.word) == ("蓝", "灰")

    def test_empty_answers_are_alike(self) -> None:
        assert compare_answers(Answer("q", "", "")).same


class TestSummary:
    def test_a_16_bit_original_is_told_once(self) -> None:
        assert [bar.label for bar in size_bars(shrunk())] == ["now", "the model it came from"]

    def test_a_quantised_original_is_told_beside_the_same_at_16_bits(self) -> None:
        result = shrunk(original=ledger(bits=5))
        assert [(bar.label, bar.ratio) for bar in size_bars(result)] == [
            ("now", None),
            ("the model it came from", "0.87"),
            ("the same at 16 bits", "0.31"),
        ]

    def test_a_32_bit_original_is_the_base_and_16_bits_are_told_too(self) -> None:
        wide = Ledger(tuple(replace(e, nbytes=4 * e.parameters) for e in ledger().entries))
        bars = size_bars(shrunk(original=wide, base_bytes=wide.nbytes))
        assert [bar.label for bar in bars] == ["now", "the model it came from", "the same at 16 bits"]

    def test_a_model_that_grew_says_so(self) -> None:
        tiny = Ledger(tuple(replace(e, nbytes=e.nbytes // 2) for e in ledger().entries))
        assert size_bars(shrunk(original=tiny))[1].ratio == "2.00"

    def test_a_budget_that_was_missed_is_not_passed_over(self) -> None:
        assert "not reached" in summary(shrunk(asked=Asked(4_000_000, None, "default", 0))).asked
        assert "not reached" not in summary(shrunk(asked=Asked(5_100_000, None, "default", 0))).asked

    @pytest.mark.parametrize(
        ("name", "short"), [("a/b/model.gguf", "model.gguf"), ("org/name", "name"), ("/", "/")]
    )
    def test_the_headline_uses_the_last_part_of_the_name(self, name: str, short: str) -> None:
        assert summary(shrunk(original_name=name)).name == short

    def test_choice_that_has_no_items_was_not_measured(self) -> None:
        none = evaluation(text_result(choice_accuracy=None, choice_kept=None))
        assert summary(shrunk(report=none)).tiles[1].figure.text == "not measured"
        unclear = evaluation(text_result(choice_kept=None))
        assert summary(shrunk(report=unclear)).tiles[1].figure.text == "not measurable"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model.layers.3.mlp.up_proj", "layer 3, up"),
        ("model.layers.12.self_attn.q_proj.weight", "layer 12, q"),
        ("model.embed_tokens.weight", "embedding"),
        ("lm_head", "head"),
        ("proj", "proj"),
    ],
)
def test_a_matrix_is_placed_by_its_name(name: str, place: str) -> None:
    assert str(place_of(name)) == place

"""The report as a page: complete, self-contained, and safe whatever the names and texts in it are."""

import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from tests.unit.report_fakes import evaluation, shrunk, text_result

from penjing.evaluate.result import holds
from penjing.shrink.report.page import render_report
from penjing.shrink.result import Answer, Asked

SECTIONS = [
    "Size against quality",
    "What was kept",
    "Bits per layer",
    "Where the loss sits",
    "The two models' answers",
    "How to run it",
    "How it was made",
]
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """The tags of a page with their attributes; an end tag without its start is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def count(self, tag: str) -> int:
        return Counter(name for name, _ in self.tags)[tag]


def page(out: str = "small", **changes) -> str:
    return render_report(shrunk(**changes), out)


def header_of(html: str) -> str:
    return html.partition("<header>")[2].partition("</header>")[0]


def test_the_page_is_well_formed_with_one_headline_and_all_sections_in_order() -> None:
    parsed = Page(page())
    assert parsed.open == []
    assert parsed.count("h1") == 1
    found = [text for text in parsed.texts["h2"] if text in SECTIONS]
    assert found == SECTIONS


def test_the_headline_states_size_ratio_and_bits() -> None:
    words = " ".join(re.sub(r"<[^>]*>", "", header_of(page())).split())
    assert "Big-1B is now 5.0 MB: 0.31 of the base, 5.00 bits per weight" in words


def test_every_table_has_a_caption_and_every_drawing_a_name_or_is_hidden() -> None:
    parsed = Page(page())
    assert parsed.count("table") == parsed.count("caption") > 0
    for tag, attributes in parsed.tags:
        if tag == "svg":
            assert "aria-label" in attributes or attributes.get("aria-hidden") == "true"


def test_ids_are_unique_and_labels_lead_somewhere() -> None:
    parsed = Page(page())
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = {
        attributes["aria-labelledby"] for _, attributes in parsed.tags if "aria-labelledby" in attributes
    }
    assert labels <= set(ids)


def test_nothing_is_fetched_from_anywhere() -> None:
    html = page()
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    for _, attributes in Page(html).tags:
        assert not {"src", "href", "srcset", "data", "action"} & set(attributes)


def test_the_content_policy_allows_exactly_the_pages_own_style_and_script() -> None:
    html = page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    directives = policy[1].replace("&#39;", "'")
    assert directives.startswith("default-src 'none';")
    assert "unsafe" not in directives
    for tag in ("style", "script"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = b64encode(sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in directives


def test_no_inline_style_or_handler_that_the_policy_would_block() -> None:
    for _, attributes in Page(page()).tags:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]


EVIL = "</style></script><script>alert(1)</script><img src=x onerror='alert(2)' title=\"a\">"


def test_names_texts_and_answers_cannot_bring_markup() -> None:
    plain = Page(page())
    evil = Page(
        page(
            out=EVIL,
            original_name=EVIL,
            asked=Asked(None, 0.95, EVIL, 0),
            answers=(Answer(EVIL, EVIL, EVIL + "!"),),
            notices=(EVIL,),
            report=replace(evaluation(text_result(), **{EVIL: text_result()}), notices=(EVIL,)),
            divergence={EVIL: 1.0},
        )
    )
    assert evil.count("script") == plain.count("script") == 1
    assert evil.count("img") == 0


def test_an_answer_is_shown_as_it_was_given() -> None:
    html = page(answers=(Answer("Bold?", "<b>yes</b>", "a & b"),))
    assert "&lt;b&gt;yes&lt;/b&gt;" in html
    assert "&amp;" in html


def test_text_that_utf8_or_html_cannot_carry_is_replaced_not_fatal() -> None:
    html = page(out="caf\udce9", answers=(Answer("q", "nul\x00 esc\x1b", "half \ud83d"),))
    html.encode("utf-8")
    assert "\x00" not in html
    assert "caf\ufffd" in html


def test_the_folder_is_quoted_for_a_shell() -> None:
    html = page(out="my models/it's", original_name="a b.gguf")
    assert "penjing chat &#39;my models/it&#39;&#34;&#39;&#34;&#39;s&#39;" in html
    assert "--against &#39;a b.gguf&#39;" in html


def test_without_a_promise_the_page_says_so() -> None:
    header = header_of(page(asked=Asked(5_000_000, None, "default", 0), verdict=None))
    assert "No promise was asked for" in header
    assert "holds" not in header and "does not hold" not in header


def test_a_promise_that_does_not_hold_says_so_with_its_reason() -> None:
    report = evaluation(text_result(kept=0.90))
    header = header_of(page(report=report, verdict=holds(report, 0.95)))
    assert "95% kept: does not hold" in header
    assert "perplexity kept is at least 89.50%" in header


def test_a_fast_run_is_called_indicative() -> None:
    assert "indicative" in page(asked=Asked(None, 0.95, "fast", 0))
    assert "indicative" not in page()


def test_what_was_not_measured_says_so_and_no_number_stands_in() -> None:
    nothing = text_result(
        choice_accuracy=None, perplexity_kept=None, choice_kept=None, kl=None, agreement=None
    )
    html = page(report=evaluation(nothing), verdict=None, trials=(), predicted=(), divergence={}, answers=())
    assert html.count("not measured") >= 8
    assert "Nothing was measured or predicted." in html
    assert "Not measured: no loss was predicted" in html
    assert "No questions were asked." in html
    assert not re.search(
        r"\bnan\b|\binf\b|\bNone\b", re.sub(r"<script>.*?</script>|<style>.*?</style>", "", html, flags=re.S)
    )


def test_choice_that_is_not_measurable_differs_from_choice_that_was_not_measured() -> None:
    assert "not measurable" in page(report=evaluation(text_result(choice_kept=None)))


@pytest.mark.parametrize("kept", [0.0, 1e-300, float("nan"), float("inf")])
def test_a_ruined_model_still_gets_its_page(kept: float) -> None:
    ruined = shrunk().trials[0]
    interval = replace(ruined.perplexity_kept, value=kept, low=kept, high=kept)
    html = page(trials=(replace(ruined, kl=float("inf"), perplexity_kept=interval),))
    assert Page(html).open == []


def test_each_notice_is_told_once() -> None:
    report = replace(evaluation(text_result()), notices=("choice is not measurable here",))
    html = page(report=report, notices=("an odd file", "an odd file", *report.notices))
    assert html.count("An odd file.") == 1
    assert html.count("Choice is not measurable here.") == 1


def test_the_same_result_gives_the_same_page() -> None:
    assert page() == page()

"""`report.html`: one page that needs nothing but itself."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from penjing.shrink.report import frontier, heatmap, kept, losses, made, numbers
from penjing.shrink.report.answers import compare_answers
from penjing.shrink.report.summary import summary
from penjing.shrink.result import ShrinkResult

# Control characters and lone halves of surrogate pairs, which UTF-8 or HTML can't carry.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def render_report(result: ShrinkResult, out: str) -> str:
    """The report on `result` as an HTML page; `out` is the folder that its commands name.

    Everything that comes from outside (names, texts, answers) is escaped, and the page's content policy
    allows no script or style but its own and no network. What was not measured says so.
    """
    style, script = Markup(_asset("report.css")), Markup(_asset("report.js"))
    page = (
        _environment()
        .get_template("report.html")
        .render(
            style=style,
            script=script,
            policy=_policy(style, script),
            summary=summary(result),
            charts=[c for c in (frontier.divergence_chart(result), frontier.perplexity_chart(result)) if c],
            box=frontier,
            original_size=numbers.size(result.original.nbytes),
            kinds={frontier.kind_of(trial) for trial in result.trials},
            predicted=bool(result.predicted),
            trials=frontier.trial_rows(result.trials),
            texts=kept.kept_rows(result.report),
            overall=kept.kept_row("all texts", result.report.overall),
            measured_notices=[numbers.sentence(notice) for notice in result.report.notices],
            heat=heatmap.heat_map(result.model.ledger),
            heat_steps=[label for _, label in heatmap.STEPS],
            stored=[(kind, numbers.size(n)) for kind, n in result.model.ledger.bytes_by_kind().items()],
            losses=losses.losses(result.divergence, result.model.ledger),
            answers=[compare_answers(answer) for answer in result.answers],
            commands=made.commands(result, out),
            facts=made.facts(result),
            notices=made.notices(result),
        )
    )
    return _UNPRINTABLE.sub("\ufffd", page)


def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return files("penjing.shrink.report").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that names this page's own style and script by their hashes."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"

"""HTML fragments for notebooks: runs, evaluations, head tables, and the attention of an input.

The style of the pages applies only inside a fragment. Attention is a page in a frame, because its
script selects heads and queries.
"""

import re
from collections.abc import Mapping
from functools import singledispatch

from markupsafe import Markup

from harken.inputs import is_file
from harken.inspection.heads import HeadTable
from harken.measure.interval import Estimate
from harken.report import tables
from harken.report.attention_page import attention_page, example_title
from harken.report.head_table import head_rows
from harken.report.page import macro, page_style
from harken.report.run_page import metric_tables, run_facts
from harken.report.viewed_attention import view_attention
from harken.run import Run
from harken.run_folder import METRICS, read_metrics
from harken.tasks.attention_view import AttentionExample
from harken.tasks.prediction import Evaluation


@singledispatch
def notebook_html(value: object) -> str | None:
    """Return the HTML of a value; None if it is shown as text."""
    raise TypeError(type(value))


@notebook_html.register
def _(run: Run) -> str:
    facts = {"folder": str(run.folder), **run_facts(run), "device": str(run.device)}
    results = Markup()
    if is_file(run.folder / METRICS):
        stored = read_metrics(run.folder)
        metrics = {name: Estimate(**metric) for name, metric in stored["metrics"].items()}
        results = metric_tables(metrics, stored["n"])
    return _fragment(facts, results)


@notebook_html.register
def _(evaluation: Evaluation) -> str:
    facts = {"examples": f"{evaluation.n:,}"}
    return _fragment(facts, metric_tables(evaluation.metrics, evaluation.n, evaluation.notes))


@notebook_html.register
def _(heads: HeadTable) -> str:
    return _fragment({}, tables.plain_table(*head_rows(heads)))


@notebook_html.register
def _(example: AttentionExample) -> str | None:
    if example.model is None:
        return None
    views = view_attention(example.model, example)
    document = attention_page(example_title(example), views, {})
    return macro("notebook.html", "frame", document=document)


def _fragment(facts: Mapping[str, str], body: Markup) -> str:
    # With CSS nesting, `table` inside `.harken { }` is `.harken table`; `&` is `.harken` itself.
    style = re.sub(r"^( *)(:root|body) ", r"\1& ", page_style(), flags=re.MULTILINE)
    return macro("notebook.html", "fragment", style=Markup(style), facts=facts, body=body)

"""The model card of an export, in Markdown."""

from textwrap import indent

from harken.errors import Failure
from harken.export.parity import Parity
from harken.measure.interval import Estimate, format_interval, format_value
from harken.run import Run
from harken.run_folder import read_metrics
from harken.version import __version__


def export_card(run: Run, parity: Parity, usage: str) -> str:
    """Return the README of an export folder."""
    outputs = "\n".join(
        f"| {name} | {agreement.share:.1%} | {agreement.equal:,} | {agreement.ties:,} "
        f"| {agreement.inputs:,} |"
        for name, agreement in parity.outputs.items()
    )
    count = parity.inputs - parity.generated_inputs
    source = f"{count:,} inputs of the dev split and {parity.generated_inputs:,} generated inputs"
    return f"""# {run.folder.name}

A model for the task `{run.recipe.task}`, trained with Harken and exported with Harken \
{__version__} to the format `{parity.format}` in {parity.precision}.
{_metrics(run)}
## Comparison with the original

Logits differ by at most {parity.max_logit_difference:.2g}, on {source}.

| search | equal outputs | equal | ties | inputs |
| --- | ---: | ---: | ---: | ---: |
{outputs}

`parity.json` has these figures and the versions of all packages.

## Usage

{indent(usage, "    ")}
"""


def _metrics(run: Run) -> str:
    """Return the table of the metrics that training measured, if the run has them."""
    try:
        stored = read_metrics(run.folder)
    except Failure:
        return ""
    estimates = {name: Estimate(**entry) for name, entry in stored["metrics"].items()}
    rows = "\n".join(
        f"| {name.replace('_', ' ')} | {format_value(metric.value, metric.unit)} "
        f"| {format_interval(metric)} |"
        for name, metric in estimates.items()
    )
    return f"""
## Results of the original on the dev split ({stored["n"]} examples)

| metric | value | 95 % interval |
| --- | ---: | ---: |
{rows}
"""

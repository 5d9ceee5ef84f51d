"""HTML of results in notebooks.

A notebook calls `_repr_html_` of the last value of a cell. `report/notebook_html.py` renders it; it
depends on the classes that are shown, so it is imported by name when it is called.
"""

from importlib import import_module


class NotebookOutput:
    """Base of the classes that `report/notebook_html.py` renders."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("harken.report.notebook_html").notebook_html(self)
        return html

"""Pages that Jupyter Server exports with sanitized HTML show pictures of profiles."""

from __future__ import annotations

from typing import Any

from nbconvert.preprocessors import Preprocessor


class PicturesOfProfiles(Preprocessor):
    """In pages whose HTML nbconvert sanitizes, leaves the picture and the text of a dashboard.

    nbconvert does not remove elements that it does not know, but escapes them: the source of the
    dashboard, with its script, would be on the page as text.
    """

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:  # noqa: ARG002
        """Remove the HTML of dashboards from the outputs of a cell; other outputs stay."""
        if resources.get("should_sanitize_html"):
            for output in cell.get("outputs", ()):
                data = output.get("data", {})
                if "<div data-nbprof" in data.get("text/html", ""):
                    del data["text/html"]
        return cell, resources

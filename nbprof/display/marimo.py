"""What marimo shows of an object: what `_display_` returns. It runs no scripts of mime bundles."""

from __future__ import annotations

from typing import Any

# A dashboard is as dark as what is behind it, which in a frame is nothing.
_BACKGROUND = """<style>body { margin: 0 }</style>
<script>
try {
  for (let node = frameElement; node; node = node.parentElement ?? node.getRootNode().host) {
    const color = parent.getComputedStyle(node).backgroundColor;
    if (!/^rgba\\(.*, 0\\)$|^transparent$/.test(color)) {
      document.documentElement.style.background = color;
      break;
    }
  }
} catch {
  // A frame of another origin.
}
</script>
"""


def frame(html: str, height: int = 400) -> Any:
    """HTML in a frame of its own, in which scripts run and which grows with its content.

    Parameters
    ----------
    html : str
    height : int
        The least height, in px.
    """
    import marimo

    return marimo.iframe(_BACKGROUND + html, height=f"{height}px")

"""A Bokeh figure as the HTML of a cell's output, which needs no network and no other output."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from functools import cache
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bokeh.model import Model

_PAGE = Template("""<div id="$ident"></div>
<script type="module">
const key = Symbol.for("nbprof-bokeh@$version");
async function load() {
  // Another cell, or an extension, may have brought the same version.
  if (globalThis.Bokeh?.version === "$version") return;
  const bytes = Uint8Array.from(atob("$code"), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const code = await new Response(stream).text();
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  await new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.onload = resolve;
    script.onerror = reject;
    script.src = url;
    document.head.append(script);
  });
  URL.revokeObjectURL(url);
}
await (globalThis[key] ??= load());
await Bokeh.embed.embed_item($item, "$ident");
</script>""")


def fragment(figure: Model) -> str:
    """The HTML of a figure, live where scripts run."""
    from bokeh import __version__
    from bokeh.embed import json_item

    # Names in a profile are anybody's, and a script ends at the first end tag in it.
    item = json.dumps(json_item(figure)).replace("<", "\\u003c")
    ident = f"nbprof-{uuid.uuid4().hex}"
    return _PAGE.substitute(ident=ident, version=__version__, code=_code(), item=item)


@cache
def _code() -> str:
    from bokeh.resources import Resources

    scripts = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return base64.b64encode(gzip.compress(scripts.encode(), 9, mtime=0)).decode()

/** Memory of compiled programs: their working set from program point to program point, and what is alive at its peak. */

import { textAt } from "../../lib/codec.js";
import { toCsv } from "../../lib/csv.js";
import { clear, h, listen } from "../../lib/dom.js";
import { bytesText, count, known, ms } from "../../lib/format.js";
import { downloadButton, emptyView, figures, heading, picker, segmented, tableFilter } from "../../lib/parts.js";
import type { ProgramMemory, ProgramSpace } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import type { View } from "../../lib/view.js";
import { fillName } from "../names.js";
import { bars } from "./bars.js";
import { details, first, label, type Order, ordered, spaceLabel } from "./model.js";
import { workingSet } from "./plot.js";

const NONE = { title: "No programs with known memory", text: "The profile has no compiled XLA program." };

export const render: View = (el, context) => {
  const { empty, modules, left_out, chosen } = context.payload.memory_viewer;
  const [program, of] = chosen ?? [0, 0];
  const opened = modules[program];
  if (empty || !opened) {
    el.append(h("section", emptyView(empty ?? NONE)));
    return;
  }
  const body = h("div.memory-body");
  const spaces = h("span");
  let end = new AbortController();
  listen(context.signal, "abort", () => end.abort());
  const show = (module: ProgramMemory, space: ProgramSpace): void => {
    end.abort();
    end = new AbortController();
    clear(body);
    body.append(...drawn(module, space, end.signal));
  };
  const choose = (module: ProgramMemory, which = 0): void => {
    clear(spaces);
    if (module.spaces.length > 1) {
      const choices = module.spaces.map((space, i) => ({ id: String(i), label: spaceLabel(space) }));
      spaces.append(
        picker("Memory space", choices, String(which), (id) => show(module, module.spaces[Number(id)] as ProgramSpace)),
      );
    }
    show(module, module.spaces[which] as ProgramSpace);
  };
  const programs = picker(
    "Program",
    modules.map((module, i) => ({ id: String(i), label: label(module) })),
    String(program),
    (id) => choose(modules[Number(id)] ?? opened),
  );
  el.append(h("div.toolbar.memory-pick.programs", programs, spaces), body, left_out ? h("p.dim", left_out) : "");
  choose(opened, of);
};

function drawn(module: ProgramMemory, space: ProgramSpace, signal: AbortSignal): HTMLElement[] {
  const picture = space.rows > 0 ? workingSet(space, signal) : null;
  const scope = [
    space.points > 0 && `${count(space.points - 1)} program points`,
    known(module.time_ms) && `${ms(module.time_ms)} on devices`,
  ];
  const key = (css: string, text: string): HTMLElement => h("span", h("i", { class: `sw ${css}` }), text);
  const padded = space.peak_bytes > space.unpadded_bytes;
  return [
    figures(space.figures),
    h(
      "section",
      heading("Working set", scope.filter(Boolean).join(", ")),
      picture?.element,
      picture &&
        h(
          "div.legend.memory-legend",
          space.throughout_bytes > 0 && key("m-stack", "Live throughout"),
          key("m-heap", "Temporary"),
          padded && key("m-pad", "Padding"),
        ),
      ...space.notes.map((note) => h("p.more", note)),
    ),
    alive(module, space, signal, (buffer) => picture?.mark(buffer)),
  ];
}

/** The buffers of the peak: bars, what is known of one, and all as a table. */
function alive(
  module: ProgramMemory,
  space: ProgramSpace,
  signal: AbortSignal,
  onMark: (buffer: number) => void,
): HTMLElement {
  const { buffers } = space;
  const bySize = ordered(space, "size");
  const all = `${count(buffers.rows + space.rest_count)} buffers, ${bytesText(space.peak_bytes)}`;
  if (!buffers.rows)
    return h("section", heading("Live at the peak"), h("p.dim", "No buffer is live, or none is listed."));
  let picked = first(space);
  const bufferCard = h("dl.env.buffer", { "aria-label": "Buffer" });
  const mark = (buffer: number): void => {
    const row = buffer < 0 ? picked : buffer;
    onMark(row);
    area.mark(row);
    clear(bufferCard);
    for (const [name, value] of details(space, row)) bufferCard.append(h("dt", name), h("dd", value));
  };
  const pick = (buffer: number): void => {
    picked = buffer;
    mark(buffer);
    list.select(buffer);
  };
  const area = bars(space, signal, mark, pick);
  const holder = h("div");
  const columns: ColumnSpec[] = [
    {
      key: "buffer",
      kind: "code",
      grow: true,
      cell: (row, cell) => fillName(cell, textAt(buffers.data.framework_op, row) || textAt(buffers.data.buffer, row)),
    },
    { key: "category", narrow: true },
    {
      key: "shape",
      narrow: true,
      cell: (row, cell) => {
        cell.classList.add("shape");
        cell.title = textAt(buffers.data.shape, row);
        cell.append(h("code", cell.title));
      },
    },
    { key: "size_bytes" },
    { key: "unpadded_bytes", narrow: true },
    { key: "padding_ratio" },
    { key: "allocation", narrow: true },
  ];
  const list = table(holder, {
    table: buffers,
    columns,
    sort: { key: "size_bytes", descending: true },
    height: 320,
    onRow: pick,
    filterKeys: ["buffer", "framework_op"],
    label: `Buffers of ${module.name} live at the peak`,
    signal,
  });
  // Pointing at a row draws its lifetime too.
  listen(holder, "pointerover", (event) => {
    const index = (event.target as Element).closest<HTMLElement>("tr[data-at]")?.dataset["at"];
    if (index !== undefined) mark(list.visibleRows()[Number(index)] as number);
  });
  listen(holder, "pointerleave", () => mark(-1));
  const order = segmented<Order>(
    "Order of the bars",
    [
      { id: "program", label: "Program order" },
      { id: "size", label: "By size" },
    ],
    "program",
    (next) => area.setOrder(next),
  );
  const rest = space.rest_count;
  mark(-1);
  list.select(picked);
  return h(
    "section",
    heading(
      "Live at the peak",
      all,
      h(
        "span.actions",
        order,
        tableFilter(buffers.rows, "Filter buffers", (text) => list.setFilter(text)),
        downloadButton("nbprof-program-memory.csv", () => toCsv(buffers, bySize)),
      ),
    ),
    area.element,
    bufferCard,
    holder,
    rest > 0 &&
      h(
        "p.more",
        `${count(rest)} smaller ${rest === 1 ? "buffer" : "buffers"} of ${bytesText(space.rest_bytes)} together are not listed.`,
      ),
  );
}

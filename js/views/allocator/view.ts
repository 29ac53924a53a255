/** PyTorch's allocator: why memory ran out, its levels over time, the map of its segments, and who keeps free memory. */

import { textAt } from "../../lib/codec.js";
import { toCsv } from "../../lib/csv.js";
import { clear, h, listen } from "../../lib/dom.js";
import { bytesText, count } from "../../lib/format.js";
import { downloadButton, emptyView, figures, heading, picker } from "../../lib/parts.js";
import type { AllocatorDevice, Table } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import type { View } from "../../lib/view.js";
import { segmentMap } from "./map.js";
import { levels } from "./plot.js";

const NONE = { title: "No snapshot of PyTorch's allocator", text: "" };

export const render: View = (el, context) => {
  const { empty, devices, notes, left_out } = context.payload.allocator;
  const [only] = devices;
  if (empty || !only) {
    el.append(h("section", emptyView(empty ?? NONE)));
    return;
  }
  const body = h("div.memory-body");
  let end = new AbortController();
  listen(context.signal, "abort", () => end.abort());
  const show = (device: AllocatorDevice): void => {
    end.abort();
    end = new AbortController();
    clear(body);
    body.append(...drawn(device, end.signal));
  };
  const choices = devices.map((device, i) => ({ id: String(i), label: device.name }));
  el.append(
    devices.length > 1
      ? h(
          "div.toolbar.memory-pick",
          picker("Device", choices, "0", (id) => show(devices[Number(id)] ?? only)),
        )
      : "",
    body,
    ...[...notes, left_out].filter(Boolean).map((note) => h("p.dim", note)),
  );
  show(only);
};

function drawn(device: AllocatorDevice, signal: AbortSignal): HTMLElement[] {
  const key = (css: string, text: string): HTMLElement => h("span", h("i", { class: `sw ${css}` }), text);
  const { ooms, when } = device;
  return [
    ...(ooms.length
      ? [
          h(
            "section.oom",
            heading("Out of memory", ooms.length > 1 ? `the last ${ooms.length} times, latest first` : ""),
            ...ooms.map((oom, i) =>
              i
                ? h("details", h("summary", oom.when), h("p", oom.text), h("p", oom.remedy))
                : h("div", h("p", h("b", `${oom.when}: `), oom.text), h("p", oom.remedy)),
            ),
          ),
        ]
      : []),
    figures(device.figures),
    ...(device.x.length
      ? [
          h(
            "section",
            heading("Reserved and in use", `${count(device.entries)} entries of the history`),
            levels(device, signal),
            h(
              "div.legend.memory-legend",
              key("m-res", "Reserved"),
              key("m-heap", "Active"),
              key("m-stack", "Allocated"),
              ooms.length > 0 && key("m-oom", "Out of memory"),
            ),
          ),
        ]
      : []),
    h(
      "section",
      heading("Segments", `${when}; most stranded memory first`),
      device.blocks.rows ? segmentMap(device, signal) : h("p.dim", "The allocator held nothing."),
      h(
        "div.legend",
        key("m-stack", "In use"),
        key("m-heap", "Awaiting free"),
        key("m-lost", "Free, stranded"),
        key("m-free", "Free, releasable"),
      ),
      device.map_more && h("p.more", device.map_more),
    ),
    stranded(device, signal),
    listed(
      "In use, by line",
      when,
      device.holders,
      ["location", "bytes", "blocks"],
      "bytes",
      "nbprof-in-use.csv",
      signal,
    ),
  ];
}

function stranded(device: AllocatorDevice, signal: AbortSignal): HTMLElement {
  const { data, rows } = device.stranded;
  if (!rows)
    return h("section", heading("What strands free memory", device.when), h("p.dim", "No free memory is stranded."));
  const details = h("p.dim.lines");
  const columns = ["location", "pinned_bytes", "alone_bytes", "blocks", "bytes", "segments", "largest_hole_bytes"];
  const tell = (row: number): void => {
    details.textContent = textAt(data.stack, row);
  };
  const frames = listed(
    "What strands free memory",
    device.when,
    device.stranded,
    columns,
    "pinned_bytes",
    "nbprof-stranded.csv",
    signal,
    tell,
  );
  tell(0);
  const more = device.stranded_more;
  frames.append(details, more ? h("p.more", `${count(more)} more: p.allocator.stranded has all of them.`) : "");
  return frames;
}

function listed(
  title: string,
  scope: string,
  from: Table,
  keys: string[],
  sort: string,
  file: string,
  signal: AbortSignal,
  onRow?: (row: number) => void,
): HTMLElement {
  const holder = h("div");
  const columns: ColumnSpec[] = keys.map((name, i) => ({ key: name, ...(i ? { narrow: i > 3 } : { grow: true }) }));
  const list = table(holder, {
    table: from,
    columns,
    sort: { key: sort, descending: true },
    height: 300,
    label: title,
    signal,
    ...(onRow
      ? {
          onRow: (row: number): void => {
            onRow(row);
            list.select(row);
          },
        }
      : {}),
  });
  const total = from.rows ? bytesText((from.data[sort] as ArrayLike<number>)[0]) : "";
  const csv = downloadButton(file, () => toCsv(from, list.visibleRows()));
  return h("section", heading(title, `${scope}${total && `, the most ${total}`}`, h("span.actions", csv)), holder);
}

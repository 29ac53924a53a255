/** The cores of TPUs as a table: what each did, in all steps or in one. */

import { numberAt, textAt } from "../../lib/codec.js";
import { h } from "../../lib/dom.js";
import { ms } from "../../lib/format.js";
import { downloadButton, segmented, swatch } from "../../lib/parts.js";
import type { Cores, Table } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { unitOf } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import type { Shown } from "./shown.js";

/** A name of which the end tells. */
export const nameCell =
  (data: Table, key: string) =>
  (row: number, cell: HTMLTableCellElement): void => {
    const name = textAt(data.data[key], row);
    cell.title = name;
    cell.classList.add("tail");
    cell.append(h("bdi", name));
  };

/** `state`: the step that is on show; null where the report has no steps of several workers. */
export function coreTable(parent: HTMLElement, context: ViewContext, cores: Cores, state: Shown | null): void {
  const unit = unitOf(context.payload.meta);
  const kinds = looks(cores);
  const step = state && cores.first.length > 1 ? state : null;
  let complete = true;
  let data = cores.table;
  let most = longest(data, "mean_step_ms");
  const time = (): string => (complete ? "mean_step_ms" : "step_time_ms");
  const stack = (row: number, cell: HTMLTableCellElement): void => {
    const parts = kinds.flatMap((kind) => {
      const time = numberAt(data.data[kind.key], row);
      return time > 0 ? [{ ...kind, time }] : [];
    });
    cell.title = parts.map((part) => `${part.label} ${ms(part.time)}`).join("\n");
    cell.append(
      h(
        "div.stack.of-core",
        ...parts.map(({ css, faint, time }) =>
          h("i", { class: css, style: { "--w": `${(100 * time) / most}%`, ...(faint ? { opacity: ".45" } : {}) } }),
        ),
      ),
    );
  };
  const columns: ColumnSpec[] = [
    {
      key: "worker",
      width: 110,
      cell: (row, cell) => nameCell(data, "worker")(row, cell),
    },
    { key: "chip", dim: true, narrow: true },
    { key: "_parts", label: "", width: 160, align: "left", grow: true, cell: stack },
    { key: "mean_step_ms" },
    { key: "step_time_ms" },
    ...kinds.map(({ key }): ColumnSpec => ({ key, narrow: true })),
  ];
  const holder = h("div");
  const scope = h("small");
  const rows = table(holder, { table: data, columns, label: "Cores", sort: null, height: 320, signal: context.signal });
  const update = (): void => {
    data = complete || !step ? cores.table : stepOf(cores, step.at);
    most = longest(data, time());
    rows.setTable(data);
    scope.textContent = complete
      ? `means over the ${unit.plural} in averages, ms`
      : `${unit.noun} ${context.payload.pods.step[step?.at ?? 0]}, ms`;
  };
  const modes =
    step &&
    segmented(
      "Cores",
      [
        { id: "all", label: `All ${unit.plural}` },
        { id: "one", label: `This ${unit.noun}` },
      ],
      "all",
      (id) => {
        complete = id === "all";
        update();
      },
    );
  parent.append(
    h(
      "section",
      h(
        "h3.wrap",
        "By TPU core",
        scope,
        h(
          "span.pod-links",
          modes,
          downloadButton("nbprof-cores.csv", () => rows.csv()),
        ),
      ),
      h("div.legend.of-core", ...kinds.map(({ css, faint, label }) => h("span", swatch(css, faint), label))),
      holder,
      cores.note && h("p.more", cores.note),
    ),
  );
  step?.onChange(() => {
    if (!complete) update();
  });
  update();
}

/** The category whose colour each kind has; faint: the second kind of that category. */
const LOOKS: Record<string, readonly [css: string, faint?: boolean]> = {
  compute_ms: ["device"],
  infeed_ms: ["input"],
  outfeed_ms: ["output"],
  all_reduce_compute_ms: ["coll"],
  all_reduce_sync_ms: ["coll", true],
  send_ms: ["d2d"],
  recv_ms: ["d2d", true],
  host_transfer_ms: ["input", true],
  idle_ms: ["other"],
};

export interface Look {
  key: string;
  css: string;
  faint: boolean;
  label: string;
}

/** What is drawn of each kind. */
export const looks = (cores: Cores): Look[] =>
  cores.kinds.map((key) => {
    const [css, second] = LOOKS[key] ?? ["other"];
    // Alone, the second kind of a category has its full colour.
    const faint =
      css === "other" || Boolean(second && cores.kinds.some((other) => other !== key && LOOKS[other]?.[0] === css));
    return { key, css, faint, label: cores.table.columns.find((column) => column.key === key)?.label ?? key };
  });

/** The largest value of a column; 1 where there is none, to divide by. */
export function longest(data: Table, key: string): number {
  let most = 0;
  for (let row = 0; row < data.rows; row++) most = Math.max(most, numberAt(data.data[key], row) || 0);
  return most || 1;
}

/** One step as a table: a row a core, in the order of all. */
export function stepOf(cores: Cores, i: number): Table {
  const [from, to] = [cores.first[i] ?? 0, cores.first[i + 1] ?? 0];
  const coreNumbers = Array.from({ length: Math.max(0, to - from) }, (_, k) => cores.core[from + k] as number);
  const data: Table["data"] = {
    worker: coreNumbers.map((row) => textAt(cores.table.data["worker"], row)),
    chip: Float64Array.from(coreNumbers, (row) => numberAt(cores.table.data["chip"], row)),
    step_time_ms: cores.time_ms.slice(from, to),
  };
  for (const key of cores.kinds) data[key] = (cores.parts[key] ?? new Float32Array(0)).slice(from, to);
  return { columns: cores.heads, data, rows: coreNumbers.length };
}

/** The form that records workers: what to record, how far it is, which workers answered, and the way to the result. */

import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { h, listen } from "../../lib/dom.js";
import {
  ASKED,
  check,
  DEFAULTS,
  doing,
  type Field,
  type Fields,
  namesTpu,
  type Request,
  type Result,
  resultOf,
  sentence,
  summary,
  type WorkerState,
  workerOf,
} from "./fields.js";

export interface Doing {
  /** Asks the server to record; each line of the answer is told. Aborting cancels the recording. */
  record(request: Request, each: (line: Record<string, unknown>) => void, signal: AbortSignal): Promise<void>;
  /** Ends the recording now; what was recorded is kept. */
  stop(key: string): Promise<unknown>;
  /** A run was recorded. */
  recorded(result: Result): void;
  open(path: string): void;
  /** The fields are to be remembered. */
  keep(fields: Fields): void;
  /** What is wrong, in a sentence, and the name in the request of the field that it is about. */
  explained(error: unknown): { text: string; field: string };
}

const LEVELS: Partial<Record<Field, readonly string[]>> = {
  hostLevel: ["0: nothing", "1: most important events", "2: also ops", "3: everything"],
  deviceLevel: ["0: off", "1: on"],
  pythonLevel: ["0: off", "1: on (slower, many events)"],
};

const FIELDS: readonly (readonly [field: Field, label: string, note: string])[] = [
  ["addresses", "Worker addresses", "One or more, separated by commas"],
  ["duration", "Duration (ms)", "1 to 3,600,000 (an hour)"],
  ["delay", "Delay (ms)", "Before all start together; 0: each starts immediately; if empty, 1,000 for several workers"],
  ["retries", "Retries", "If a worker is idle, busy or unreachable; 0 to 100"],
  ["hostLevel", "Host tracer", ""],
  ["deviceLevel", "Device tracer", ""],
  ["pythonLevel", "Python tracer", ""],
  ["name", "Run name", "If empty, the time of the recording"],
  ["folder", "Folder", "For the runs, below the folder that Jupyter serves"],
];

const PLACEHOLDERS: Partial<Record<Field, string>> = {
  addresses: "grpc://worker0:6009, or torch://worker0:6009 for PyTorch",
};

type Control = HTMLInputElement | HTMLSelectElement;

let forms = 0;

export class CaptureForm extends Widget {
  private readonly controls = new Map<Field, Control>();
  private readonly problems = new Map<Field, HTMLElement>();
  private readonly fieldset = h("fieldset");
  private readonly go = h("button.jp-mod-styled.jp-mod-accept", "Record");
  private readonly halt = h("button.jp-mod-styled.nbprof-button", { hidden: true }, "Stop and Save");
  private readonly cancel = h("button.jp-mod-styled.nbprof-button", { hidden: true }, "Cancel");
  private readonly wrong = h("p.wrong", { role: "alert", hidden: true });
  private readonly state = h("section.state", { "aria-label": "Recording", tabindex: "-1", hidden: true });
  private readonly head = h("p.head");
  /** What is told to who cannot see: only what matters, not each tenth of a second. */
  private readonly voice = h("p.voice", { role: "status" });
  private readonly said = h("p.said", { "aria-hidden": "true" });
  private readonly bar = h("progress", { "aria-label": "Progress of the recording", max: 1 });
  private readonly list = h("ul.workers", { "aria-label": "Workers" });
  private readonly after = h("div.after");
  private readonly workers = new Map<string, WorkerState>();
  private ending: AbortController | null = null;
  private key = "";
  private clock: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly does: Doing) {
    super();
    this.addClass("nbprof-capture");
    forms += 1;
    for (const [field, label, note] of FIELDS) this.fieldset.append(this.row(field, label, note));
    this.go.setAttribute("type", "submit");
    const form = h(
      "form",
      { novalidate: true, "aria-label": "Capture a profile" },
      h("h2", "Capture a Profile"),
      h(
        "p.lead",
        "Records programs running elsewhere through their profiler servers. In the program, ",
        h("code", "nbprof.serve(6009)"),
        " starts one.",
      ),
      this.fieldset,
      this.wrong,
      h("div.buttons", this.go, this.halt, this.cancel),
    );
    this.state.append(this.head, this.said, this.bar, this.list, this.after);
    this.node.append(h("div.page", form, this.state, this.voice));
    listen(form, "submit", (event) => {
      event.preventDefault();
      void this.record();
    });
    listen(this.cancel, "click", () => this.ending?.abort());
    listen(this.halt, "click", () => {
      this.halt.disabled = true;
      // Where it has ended in that moment, its result is on the way.
      this.does.stop(this.key).catch(() => undefined);
    });
  }

  /** Whether it records now. */
  get busy(): boolean {
    return this.ending !== null;
  }

  get fields(): Fields {
    const fields = { ...DEFAULTS };
    for (const [field, control] of this.controls) fields[field] = control.value;
    return fields;
  }

  set fields(fields: Fields) {
    for (const [field, control] of this.controls) {
      control.value = fields[field];
      // A level that there is not.
      if (control.value !== fields[field] && field in LEVELS) control.value = DEFAULTS[field];
    }
  }

  private row(field: Field, label: string, note: string): HTMLElement {
    const id = `nbprof-capture-${forms}-${field}`;
    const describedBy = `${id}-wrong${note ? ` ${id}-note` : ""}`;
    const about = { id, "aria-describedby": describedBy, "data-lm-suppress-shortcuts": "true" };
    const levels = LEVELS[field];
    const control: Control = levels
      ? h("select.jp-mod-styled", about, ...levels.map((text) => h("option", { value: text[0] ?? "" }, text)))
      : h("input.jp-mod-styled", {
          ...about,
          type: "text",
          spellcheck: "false",
          autocomplete: "off",
          placeholder: PLACEHOLDERS[field],
          ...(["duration", "delay", "retries"].includes(field) && { inputmode: "numeric" }),
          ...(field === "addresses" && { "aria-required": "true" }),
        });
    control.value = DEFAULTS[field];
    const wrong = h("p.wrong", { id: `${id}-wrong`, hidden: true });
    this.controls.set(field, control);
    this.problems.set(field, wrong);
    listen(control, "input", () => this.mark(field, ""));
    return h(
      "div.field",
      { "data-field": field },
      h("label", { for: id }, label),
      control,
      wrong,
      note ? h("p.note", { id: `${id}-note` }, note) : null,
    );
  }

  private mark(field: Field, text: string): void {
    const control = this.controls.get(field) as Control;
    const wrong = this.problems.get(field) as HTMLElement;
    wrong.textContent = text && sentence(text);
    wrong.hidden = !text;
    if (text) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }

  /** Says beside each field what is wrong, and goes to the first such field. */
  private tell(wrong: Partial<Record<Field, string>>): void {
    const [first] = FIELDS.filter(([field]) => wrong[field]);
    for (const [field] of FIELDS) this.mark(field, wrong[field] ?? "");
    if (first) this.controls.get(first[0])?.focus();
  }

  private async record(): Promise<void> {
    if (this.ending) return;
    const { fields } = this;
    const checked = check(fields);
    this.wrong.hidden = true;
    this.tell("wrong" in checked ? checked.wrong : {});
    if ("wrong" in checked) return;
    this.does.keep(fields);
    const { request } = checked;
    const ending = new AbortController();
    this.ending = ending;
    this.begin(request);
    let result: Result | null = null;
    let message = "";
    let field = "";
    try {
      await this.does.record(
        request,
        (line) => {
          if (ending.signal.aborted) return;
          if (typeof line["recording"] === "string") {
            this.key = line["recording"];
            this.halt.disabled = false;
          }
          if (typeof line["progress"] === "string" && line["progress"]) this.said.textContent = line["progress"];
          if (line["worker"]) this.place(workerOf(line["worker"]));
          if (typeof line["message"] === "string") message = line["message"];
          result ??= resultOf(line);
        },
        ending.signal,
      );
      if (!result && !message) message = "The connection to the server was lost before the recording ended.";
    } catch (error) {
      ({ text: message, field } = this.does.explained(error));
    }
    if (this.isDisposed) return;
    this.ending = null;
    this.end(ending.signal.aborted ? null : result, ending.signal.aborted ? "" : message, field);
  }

  private begin(request: Request): void {
    this.workers.clear();
    this.list.replaceChildren();
    this.after.replaceChildren();
    for (const address of request.addresses) if (!namesTpu(address)) this.place({ address, state: "", text: "" });
    this.state.hidden = this.said.hidden = this.bar.hidden = false;
    this.said.textContent = "Starting";
    const [first, ...others] = request.addresses;
    this.tellAll(`Recording ${others.length ? `${others.length + 1} workers` : first}`);
    this.busyNow(true);
    this.halt.disabled = true;
    // Not on a button: the Enter that began it may still be held down.
    this.state.focus();
    // The length of the recording is known, that of the way here is not.
    let began = 0;
    this.bar.removeAttribute("value");
    this.clock = setInterval(() => {
      const states = [...this.workers.values()].map(({ state }) => state);
      if (states.includes("recording")) began ||= performance.now();
      const done = (performance.now() - began) / request.duration_ms;
      if (began && done < 1 && states.includes("recording")) this.bar.value = done;
      else this.bar.removeAttribute("value");
    }, 100);
  }

  private end(result: Result | null, message: string, field: string): void {
    clearInterval(this.clock);
    this.busyNow(false);
    this.said.hidden = this.bar.hidden = true;
    if (result) {
      for (const worker of result.workers) this.place(worker);
      const { path, notes } = result;
      this.tellAll(summary(result.workers));
      this.after.replaceChildren(
        h("p.path", path),
        ...notes.filter((note) => !note.startsWith("sampled over ")).map((note) => h("p.note", sentence(note))),
        h("button.jp-mod-styled.nbprof-button", { on: { click: () => this.does.open(path) } }, "Open"),
      );
      this.go.focus();
      this.does.recorded(result);
      return;
    }
    this.tellAll(message ? "" : "Cancelled. Nothing was saved.");
    const [known] = FIELDS.filter(([name]) => ASKED[name] === field);
    const failed = [...this.workers.values()].some(({ state }) => state === "failed");
    // What became of each worker stays; of one that was under way it says nothing any more.
    if (!failed) this.list.replaceChildren();
    this.state.hidden = Boolean(message) && !failed;
    if (known) {
      this.tell({ [known[0]]: message });
      return;
    }
    this.wrong.textContent = message && sentence(failed ? "Nothing was recorded." : message);
    this.wrong.hidden = !message;
    this.go.focus();
  }

  private tellAll(text: string): void {
    this.head.textContent = this.voice.textContent = text;
  }

  private busyNow(busy: boolean): void {
    this.fieldset.disabled = busy;
    this.go.hidden = busy;
    this.halt.hidden = this.cancel.hidden = !busy;
    this.node.setAttribute("aria-busy", String(busy));
  }

  private place(worker: WorkerState): void {
    const { address, state, text } = worker;
    const before = this.workers.get(address);
    this.workers.set(address, worker);
    const about = text && state !== "recorded" ? h("p.text", sentence(text)) : null;
    const row = h(
      "li",
      { "data-state": state, "data-address": address },
      h("span.address", address),
      h("span.does", state === "recorded" ? `${doing(state)}, ${text}` : doing(state)),
      about,
    );
    const item =
      before && [...this.list.children].find((child) => (child as HTMLElement).dataset["address"] === address);
    if (item) item.replaceWith(row);
    else this.list.append(row);
    if (state === "failed" && before?.state !== "failed") this.voice.textContent = `${address} is missing`;
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    const start = this.busy ? this.cancel : this.controls.get("addresses");
    start?.focus();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    clearInterval(this.clock);
    this.ending?.abort();
    super.dispose();
  }
}

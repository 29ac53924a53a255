/** Small parts that several views share. Their looks are in base.css. */

import { type Child, h, handled, listen, marked } from "./dom.js";
import { num } from "./format.js";
import { CATEGORIES, type CategoryKey, type Empty, type Figure } from "./payload.js";
import { swatch } from "./swatch.js";

export { type CardContent, categoryRows, type HoverCard, hoverCard } from "./card.js";
export { donut } from "./donut.js";
export { swatch } from "./swatch.js";

/** The CSS class that gives a category its colour. */
export function categoryClass(key: CategoryKey): string {
  return CATEGORIES.find((category) => category.key === key)?.css ?? "other";
}

export function categoryLabel(key: CategoryKey): string {
  return CATEGORIES.find((category) => category.key === key)?.label ?? "Other";
}

/** "whole run" or "all hosts": to stand beside a heading of what does not follow the selection. */
export const runTag = (): HTMLElement => h("small.run-tag", h("span", "whole run"), h("span", "all hosts"));

/** The strip of key figures. */
export function figures(figs: readonly (Figure & { ofRun?: boolean })[]): HTMLElement {
  return h(
    "dl.figs",
    ...figs.map((fig) => {
      const unit = fig.value === null ? "" : fig.unit;
      const spread = fig.value === null ? "" : fig.spread;
      return h(
        fig.ofRun ? "div.fig.of-run" : "div.fig",
        h("dt", fig.label, fig.ofRun && runTag()),
        h(
          "dd",
          h(
            "span",
            { class: fig.hot ? "v hot" : "v" },
            num(fig.value, fig.digits),
            unit && " ",
            unit && h("small", unit),
            spread && " ",
            spread && h("small", spread),
          ),
          fig.note,
          fig.bar &&
            fig.value !== null &&
            h(
              "span.mini",
              ...fig.bar.map((part) =>
                h("i", {
                  class: categoryClass(part.category),
                  style: { width: `${Math.max(0, Math.min(100, part.percent))}%` },
                }),
              ),
            ),
        ),
      );
    }),
  );
}

/** Swatches with their names, in the order given. */
export function legend(items: readonly { css: string; label: string }[]): HTMLElement {
  return h("span.legend", ...items.map((item) => h("span", swatch(item.css), item.label)));
}

/** A section's heading: a noun, its scope in small, and what sits at the right end. */
export function heading(title: string, scope?: string, ...end: Child[]): HTMLHeadingElement {
  return h("h3.wrap", title, scope && h("small", scope), ...end);
}

/** A link to another view or an action in this one. */
export function link(text: string, onClick: () => void): HTMLAnchorElement {
  return h(
    "a",
    {
      href: "#",
      role: "button",
      on: {
        click: (event: Event) => {
          event.preventDefault();
          onClick();
        },
      },
    },
    text,
  );
}

export function button(text: string, onClick: () => void, props: Record<string, string> = {}): HTMLButtonElement {
  return h("button", { class: "btn", ...props, on: { click: onClick } }, text);
}

/** A button that puts `text()` on the clipboard and says so; `name` is for screen readers. */
export function copyButton(text: () => string, label = "Copy", name = `${label} code`): HTMLButtonElement {
  const element = button(label, () => {
    void copyText(text()).then((done) => {
      element.textContent = done ? "Copied" : "Not allowed";
      setTimeout(() => {
        element.textContent = label;
      }, 1500);
    });
  });
  if (name) element.setAttribute("aria-label", name);
  return element;
}

/** Puts text on the clipboard; false where the page may not. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS or a permission: the old way, from a field outside of the shadow root.
    const area = h("textarea", { style: { position: "fixed", opacity: "0" } });
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}

/** Saves `text()` as a file. */
export function downloadButton(file: string, text: () => string, label = "Download CSV"): HTMLButtonElement {
  return button(label, () => download(file, new Blob([text()], { type: "text/csv;charset=utf-8" })));
}

function download(file: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Code to copy. Lines may be marked as added or removed; Copy leaves the removed ones out. A part of a text is not copied. */
export function codeBox(
  lines: readonly { kind: "removed" | "added" | "same"; text: string }[],
  whole = true,
): HTMLElement {
  const tags = { removed: "del", added: "ins", same: "span" } as const;
  const code = lines.flatMap((line, i): Child[] => [i > 0 && "\n", h(tags[line.kind], null, line.text)]);
  const stay = () =>
    lines
      .filter((line) => line.kind !== "removed")
      .map((line) => line.text)
      .join("\n");
  // A long line scrolls; by keyboard too.
  return h(
    "div.fix",
    whole && copyButton(stay),
    h("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, ...code),
  );
}

export function snippet(code: string): HTMLElement {
  return codeBox(code.split("\n").map((text) => ({ kind: "same", text })));
}

/** Why there is nothing to see, and how to get it. */
export function emptyView(empty: Empty): HTMLElement {
  return h("div.empty", h("b", empty.title), h("p.dim", ...marked(empty.text)), empty.code && snippet(empty.code));
}

/** One of several: a segmented control. Arrow keys move, as in any radio group. */
export function segmented<T extends string>(
  label: string,
  choices: readonly { id: T; label: string }[],
  value: T,
  onChange: (id: T) => void,
): HTMLElement & { set(id: T): void } {
  const buttons = choices.map((choice) =>
    h("button", { role: "radio", on: { click: () => choose(choice.id) } }, choice.label),
  );
  const show = (id: T): void => {
    choices.forEach((choice, i) => {
      const on = choice.id === id;
      const item = buttons[i] as HTMLButtonElement;
      item.classList.toggle("on", on);
      item.setAttribute("aria-checked", String(on));
      item.tabIndex = on ? 0 : -1;
    });
    value = id;
  };
  const choose = (id: T): void => {
    if (id === value) return;
    show(id);
    onChange(id);
  };
  const move = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    handled(event);
    const next = (choices.findIndex((choice) => choice.id === value) + by + choices.length) % choices.length;
    choose((choices[next] as { id: T }).id);
    buttons[next]?.focus();
  };
  const element = h("span.seg", { role: "radiogroup", "aria-label": label, on: { keydown: move } }, ...buttons);
  show(value);
  return Object.assign(element, { set: show });
}

/** An on/off switch. */
export function toggle(label: string, on: boolean, onChange: (on: boolean) => void): HTMLButtonElement {
  const element = h("button", { role: "switch", class: "switch" }, label);
  const show = (): void => {
    element.classList.toggle("on", on);
    element.setAttribute("aria-checked", String(on));
  };
  listen(element, "click", () => {
    on = !on;
    show();
    onChange(on);
  });
  show();
  return element;
}

export interface Field {
  element: HTMLElement;
  input: HTMLInputElement;
  /** Sets the text as if typed. */
  set(text: string): void;
  /** What is wrong with the text, where that is found out later; "" when nothing is. */
  say(wrong: string): void;
}

/** A filter or search field. `onInput` returns what is wrong with the text, or null. */
export function field(
  placeholder: string,
  onInput: (text: string) => unknown,
  options: { onKey?: (event: KeyboardEvent) => void; title?: string } = {},
): Field {
  const problem = h("span.problem", { role: "status" });
  const input = h("input", {
    type: "text",
    placeholder,
    "aria-label": placeholder,
    spellcheck: "false",
    autocomplete: "off",
    "data-filter": "",
    title: options.title ?? "Part of the name, or /a regular expression/",
  });
  const box = h("label.field.grow", h("span", { "aria-hidden": "true" }, "⌕"), input);
  const say = (wrong: string): void => {
    if (problem.textContent !== wrong) problem.textContent = wrong;
    box.classList.toggle("wrong", wrong !== "");
    input.setAttribute("aria-invalid", String(wrong !== ""));
  };
  const change = (): void => {
    const status = onInput(input.value);
    say(typeof status === "string" ? status : "");
  };
  listen(input, "input", change);
  listen(input, "keydown", (event) => {
    options.onKey?.(event);
    if (event.key === "Escape" && input.value) {
      input.value = "";
      change();
      event.stopPropagation();
    }
  });
  return {
    element: h("span.fieldbox", box, problem),
    input,
    set(text) {
      input.value = text;
      change();
    },
    say,
  };
}

/** Rows from which on a filter helps. */
const MANY = 15;

/** The filter of a table with so many rows; nothing of a few. */
export function tableFilter(
  rows: number,
  placeholder: string,
  onInput: (text: string) => string | null,
): HTMLElement | null {
  return rows > MANY ? field(placeholder, onInput).element : null;
}

/** A drop-down list with its name inside the frame: "Where Any". */
export function picker<T extends string>(
  label: string,
  choices: readonly { id: T; label: string }[],
  value: T,
  onChange: (id: T) => void,
): HTMLElement {
  const select = h(
    "select",
    { "aria-label": label },
    ...choices.map((choice) => h("option", { value: choice.id, selected: choice.id === value }, choice.label)),
  );
  listen(select, "change", () => onChange(select.value as T));
  return h("label.field.pick", label, select);
}

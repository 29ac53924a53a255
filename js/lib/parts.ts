/** Small parts that several views share. Their looks are in base.css. */

import { type Child, clear, h, marked, s } from "./dom.js";
import { num } from "./format.js";
import { CATEGORIES, type CategoryKey, type Empty, type Figure } from "./payload.js";

/** The CSS class that gives a category its colour. */
export function categoryClass(key: CategoryKey): string {
  return CATEGORIES.find((category) => category.key === key)?.css ?? "other";
}

export function categoryLabel(key: CategoryKey): string {
  return CATEGORIES.find((category) => category.key === key)?.label ?? "Other";
}

/** A colour swatch; `css` is the class of a category. */
export function swatch(css: string, faint = false): HTMLElement {
  return h("i", { class: `sw ${css}`, style: faint ? { opacity: ".35" } : {} });
}

/** The strip of key figures. */
export function figures(figs: readonly Figure[]): HTMLElement {
  return h(
    "dl",
    { class: "figs" },
    ...figs.map((fig) => {
      const unit = fig.value === null ? "" : fig.unit;
      const small = [unit, fig.value === null ? "" : fig.spread].filter(Boolean).join(" ");
      return h(
        "div",
        { class: "fig" },
        h("dt", null, fig.label),
        h(
          "dd",
          null,
          h(
            "span",
            { class: fig.hot ? "v hot" : "v" },
            num(fig.value, fig.digits),
            small && h("small", null, ` ${small}`),
          ),
          fig.note,
          fig.bar &&
            fig.value !== null &&
            h(
              "span",
              { class: "mini" },
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
  return h("span", { class: "legend" }, ...items.map((item) => h("span", null, swatch(item.css), item.label)));
}

/** A section's heading: a noun, its scope in small, and what sits at the right end. */
export function heading(title: string, scope?: string, ...end: Child[]): HTMLHeadingElement {
  return h("h3", { class: "wrap" }, title, scope && h("small", null, scope), ...end);
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
  return h("button", { type: "button", class: "btn", ...props, on: { click: onClick } }, text);
}

/** A button that puts `text()` on the clipboard and says so. */
export function copyButton(text: () => string, label = "Copy"): HTMLButtonElement {
  const element = button(label, () => {
    void copyText(text()).then((done) => {
      element.textContent = done ? "Copied" : "Not allowed";
      setTimeout(() => {
        element.textContent = label;
      }, 1500);
    });
  });
  element.setAttribute("aria-label", `${label} code`);
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

export function download(file: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Code to copy. Lines may be marked as added or removed; Copy leaves the removed ones out. */
export function codeBox(lines: readonly { kind: "removed" | "added" | "same"; text: string }[]): HTMLElement {
  const tags = { removed: "del", added: "ins", same: "span" } as const;
  const code = lines.flatMap((line, i): Child[] => [i > 0 && "\n", h(tags[line.kind], null, line.text)]);
  const kept = () =>
    lines
      .filter((line) => line.kind !== "removed")
      .map((line) => line.text)
      .join("\n");
  return h("div", { class: "fix" }, copyButton(kept), h("pre", null, ...code));
}

export function snippet(code: string): HTMLElement {
  return codeBox(code.split("\n").map((text) => ({ kind: "same", text })));
}

/** Why there is nothing to see, and how to get it. */
export function emptyView(empty: Empty): HTMLElement {
  return h(
    "div",
    { class: "empty" },
    h("b", null, empty.title),
    h("p", { class: "dim" }, ...marked(empty.text)),
    empty.code && snippet(empty.code),
  );
}

/** One of several: a segmented control. Arrow keys move, as in any radio group. */
export function segmented<T extends string>(
  label: string,
  choices: readonly { id: T; label: string }[],
  value: T,
  onChange: (id: T) => void,
): HTMLElement & { set(id: T): void } {
  const buttons = choices.map((choice) =>
    h("button", { type: "button", role: "radio", on: { click: () => choose(choice.id) } }, choice.label),
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
    event.preventDefault();
    event.stopPropagation();
    const next = (choices.findIndex((choice) => choice.id === value) + by + choices.length) % choices.length;
    choose((choices[next] as { id: T }).id);
    buttons[next]?.focus();
  };
  const element = h(
    "span",
    { class: "seg", role: "radiogroup", "aria-label": label, on: { keydown: move } },
    ...buttons,
  );
  show(value);
  return Object.assign(element, { set: show });
}

/** An on/off switch. */
export function toggle(label: string, on: boolean, onChange: (on: boolean) => void): HTMLButtonElement {
  const element = h("button", { type: "button", role: "switch", class: "switch" }, label);
  const show = (): void => {
    element.classList.toggle("on", on);
    element.setAttribute("aria-checked", String(on));
  };
  element.addEventListener("click", () => {
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
}

/** A filter or search field. `onInput` returns what is wrong with the text, or null. */
export function field(
  placeholder: string,
  onInput: (text: string) => string | null | undefined | void,
  options: { onKey?: (event: KeyboardEvent) => void; title?: string } = {},
): Field {
  const problem = h("span", { class: "problem", role: "status" });
  const input = h("input", {
    type: "text",
    placeholder,
    "aria-label": placeholder,
    spellcheck: "false",
    autocomplete: "off",
    "data-filter": "",
    title: options.title ?? "Part of the name, or /a regular expression/",
  });
  const box = h("label", { class: "field grow" }, h("span", { "aria-hidden": "true" }, "⌕"), input);
  const change = (): void => {
    const wrong = onInput(input.value) || "";
    problem.textContent = wrong;
    box.classList.toggle("wrong", wrong !== "");
    input.setAttribute("aria-invalid", String(wrong !== ""));
  };
  input.addEventListener("input", change);
  input.addEventListener("keydown", (event) => {
    options.onKey?.(event);
    if (event.key === "Escape" && input.value) {
      input.value = "";
      change();
      event.stopPropagation();
    }
  });
  return {
    element: h("span", { class: "fieldbox" }, box, problem),
    input,
    set(text) {
      input.value = text;
      change();
    },
  };
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
  select.addEventListener("change", () => onChange(select.value as T));
  return h("label", { class: "field pick" }, label, select);
}

export interface DonutPart {
  label: string;
  percent: number;
  /** "others" is grey, "idle" grey hatch. */
  kind?: "rank" | "others" | "idle";
}

const LIGHTNESS = {
  5: [100, 80, 63, 48, 35],
  10: [100, 90, 80, 71, 63, 55, 48, 41, 35, 29],
} as const;

/** Ranked parts of one thing: hue says where (d: device, h: host, i: input), lightness says rank. */
export function donut(options: {
  title: string;
  /** At the right of the title: "32.5 ms". */
  total: string;
  hue: "d" | "h" | "i";
  parts: readonly DonutPart[];
  center?: [string, string];
  /** Draws the label of a part in the list; plain text by default. */
  label?: (part: DonutPart) => Node;
  size?: number;
}): HTMLElement {
  const ranked = options.parts.filter((part) => (part.kind ?? "rank") === "rank").length;
  const steps = LIGHTNESS[ranked > 5 ? 10 : 5];
  const size = options.size ?? 88;
  let rank = 0;
  let start = 0;
  const arcs: SVGElement[] = [];
  const rows: HTMLElement[] = [];
  for (const part of options.parts) {
    const kind = part.kind ?? "rank";
    const css = kind === "rank" ? `r-${options.hue}` : kind === "idle" ? "r-idle" : "r-o";
    const style = { "--k": `${kind === "rank" ? (steps[rank++] ?? 29) : 100}%` };
    if (part.percent > 0) {
      // A gap of 0.6 parts of 100 between slices, but never a slice that is not to be seen.
      const length = Math.max(0.2, part.percent - 0.6);
      arcs.push(
        s("circle", {
          class: css,
          style,
          cx: 44,
          cy: 44,
          r: 36,
          pathLength: 100,
          "stroke-dasharray": `${length.toFixed(2)} ${(100 - length).toFixed(2)}`,
          "stroke-dashoffset": (-start).toFixed(2),
        }),
      );
    }
    start += Math.max(0, part.percent);
    rows.push(
      h(
        "li",
        { class: css, style },
        h("i"),
        options.label?.(part) ?? h("span", { class: "tail", title: part.label }, h("bdi", null, part.label)),
        `${num(part.percent, 1)}%`,
      ),
    );
  }
  const biggest = options.parts[0];
  return h(
    "figure",
    { class: "donut" },
    h("h4", null, h("b", null, options.title), h("span", null, options.total)),
    s(
      "svg",
      {
        width: size,
        height: size,
        viewBox: "0 0 88 88",
        role: "img",
        "aria-label": biggest
          ? `${options.title}: ${biggest.label} ${num(biggest.percent, 1)}%`
          : `${options.title}: nothing recorded`,
      },
      s("g", { transform: "rotate(-90 44 44)" }, ...arcs),
      options.center && s("text", { x: 44, y: 43 }, options.center[0]),
      options.center && s("text", { x: 44, y: 57 }, options.center[1]),
    ),
    h("ul", { class: "dl" }, ...rows),
  );
}

/** Client coordinates of what a hover card describes. */
export interface MarkRect {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export interface CardContent {
  title: string;
  total?: string;
  /** label, value, and a faint third column; a swatch where `css` is given. */
  rows: { css?: string; label: string; value: string; note?: string }[];
  /** Label and value only, values at the left and wrapping: for text. */
  two?: boolean;
}

export interface HoverCard {
  show(mark: MarkRect, content: CardContent): void;
  hide(): void;
}

/** Gap between a mark and its card. */
const GAP = 8;

/** A hover card inside the dashboard's frame: on the side with more room, never over its mark. */
export function hoverCard(near: HTMLElement, signal?: AbortSignal): HoverCard {
  const card = h("div", { class: "card", "aria-hidden": "true", style: { display: "none" } });
  const hide = (): void => {
    card.style.display = "none";
  };
  signal?.addEventListener("abort", () => card.remove());
  const show = (mark: MarkRect, content: CardContent): void => {
    const frame = near.closest<HTMLElement>(".nbp") ?? near;
    if (card.parentElement !== frame) frame.append(card);
    clear(card);
    card.append(
      h("h4", null, h("span", null, content.title), content.total && h("span", null, content.total)),
      h(
        "dl",
        { class: content.two ? "two" : "" },
        ...content.rows.flatMap((row) => [
          h("dt", null, row.css && swatch(row.css), row.label),
          h("dd", null, row.value),
          !content.two && h("dd", { class: "dim" }, row.note ?? ""),
        ]),
      ),
    );
    const box = frame.getBoundingClientRect();
    Object.assign(card.style, { display: "", left: "0", top: "0", maxWidth: `${Math.max(120, box.width - 16)}px` });
    const { offsetWidth: width, offsetHeight: height } = card;
    const [roomLeft, roomRight] = [mark.left - box.left - GAP, box.right - mark.right - GAP];
    const middle = (mark.top + mark.bottom) / 2 - box.top;
    let left: number;
    let top = middle - height / 2;
    if (Math.max(roomLeft, roomRight) >= width + 4) {
      left = roomRight >= roomLeft ? mark.right - box.left + GAP : mark.left - box.left - GAP - width;
    } else {
      left = (mark.left + mark.right) / 2 - box.left - width / 2;
      const above = mark.top - box.top - GAP - height;
      top = above >= 4 ? above : mark.bottom - box.top + GAP;
    }
    const clamp = (value: number, room: number): number => Math.max(4, Math.min(value, room - 4));
    // The frame's border moves the origin of its absolutely placed children.
    card.style.left = `${clamp(left, box.width - width) - frame.clientLeft}px`;
    card.style.top = `${clamp(top, box.height - height) - frame.clientTop}px`;
  };
  return { show, hide };
}

/**
 * What a reader has set in a view, to be set again where the view is drawn anew: the state of its controls, read from
 * them and put back through them, and what a view says of itself.
 */

export interface Keeper {
  read(): unknown;
  write(value: never): void;
}

export interface Kept {
  controls: Control[];
  /** By keeper, in the order in which the view has named them. */
  own: unknown[];
}

/** One control: the how-maniest of its kind, and what it says. */
interface Control {
  kind: keyof typeof KINDS;
  at: number;
  value: string;
}

const type = (element: Element, event: string): unknown => element.dispatchEvent(new Event(event, { bubbles: true }));

/** In the order in which they are set again: what decides which others there are comes first. */
const KINDS = {
  select: {
    of: "select",
    read: (element: HTMLElement) => (element as HTMLSelectElement).value,
    write: (element: HTMLElement, value: string) => {
      (element as HTMLSelectElement).value = value;
      type(element, "change");
    },
  },
  radio: {
    of: "[role=radiogroup]",
    read: (element: HTMLElement) => element.querySelector("[aria-checked=true]")?.textContent ?? "",
    write: (element: HTMLElement, value: string) => {
      for (const choice of element.querySelectorAll<HTMLElement>("[role=radio]")) {
        if (choice.textContent === value) choice.click();
      }
    },
  },
  toggle: {
    of: "[role=switch]",
    read: (element: HTMLElement) => element.getAttribute("aria-checked") ?? "",
    write: (element: HTMLElement) => element.click(),
  },
  field: {
    of: "input:is([data-filter],[type=range])",
    read: (element: HTMLElement) => (element as HTMLInputElement).value,
    write: (element: HTMLElement, value: string) => {
      (element as HTMLInputElement).value = value;
      type(element, "input");
    },
  },
  opened: {
    of: "button[aria-expanded]",
    read: (element: HTMLElement) => element.getAttribute("aria-expanded") ?? "",
    write: (element: HTMLElement) => element.click(),
  },
  sorted: {
    of: "table:has([aria-sort])",
    read: (element: HTMLElement) => {
      const heads = [...element.querySelectorAll("th")];
      const column = heads.findIndex((head) => /ing$/.test(head.getAttribute("aria-sort") ?? ""));
      return `${column} ${heads[column]?.getAttribute("aria-sort")}`;
    },
    write: (element: HTMLElement, value: string) => {
      // A first click sorts, a second one turns the order.
      for (let i = 0; i < 2 && KINDS.sorted.read(element) !== value; i++) {
        element.querySelectorAll("th")[Number.parseInt(value, 10)]?.querySelector("button")?.click();
      }
    },
  },
  scrolled: {
    of: ".tw,.tx,.pod-scroll",
    read: (element: HTMLElement) => `${element.scrollTop} ${element.scrollLeft}`,
    write: (element: HTMLElement, value: string) => {
      const [top, left] = value.split(" ").map(Number);
      element.scrollTop = top ?? 0;
      element.scrollLeft = left ?? 0;
    },
  },
};

const all = (view: HTMLElement, kind: keyof typeof KINDS): HTMLElement[] => [
  ...view.querySelectorAll<HTMLElement>(KINDS[kind].of),
];

export function readKept(view: HTMLElement, keepers: readonly Keeper[]): Kept {
  const kinds = Object.keys(KINDS) as (keyof typeof KINDS)[];
  return {
    controls: kinds.flatMap((kind) =>
      all(view, kind).map((element, index) => ({ kind, at: index, value: KINDS[kind].read(element) })),
    ),
    own: keepers.map((keeper) => keeper.read()),
  };
}

/** The order is that of reading, but for what the view says itself, which comes before the order of rows and scrolling. */
export function writeKept(view: HTMLElement, keepers: readonly Keeper[], { controls, own: state }: Kept): void {
  const late = new Set(["sorted", "scrolled"]);
  const put = (of: readonly Control[]): void => {
    for (const { kind, at: index, value } of of) {
      // Setting one may have drawn others anew.
      const element = all(view, kind)[index];
      if (element && KINDS[kind].read(element) !== value) KINDS[kind].write(element, value);
    }
  };
  put(controls.filter(({ kind }) => !late.has(kind)));
  keepers.forEach((keeper, i) => {
    if (i < state.length) keeper.write(state[i] as never);
  });
  put(controls.filter(({ kind }) => late.has(kind)));
}

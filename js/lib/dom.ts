/**
 * Elements without markup strings.
 *
 * Names in traces are foreign text, so a child that is a string always becomes a text node, and
 * nothing in this package assigns innerHTML.
 */

export type Child = Node | string | number | null | undefined | false;

export interface Props {
  class?: string;
  text?: string;
  style?: Record<string, string>;
  on?: Record<string, (event: never) => void>;
  [attribute: string]: unknown;
}

const SVG = "http://www.w3.org/2000/svg";

function setAll(element: Element & ElementCSSInlineStyle, props: Props): void {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.setAttribute("class", String(value));
    else if (key === "text") element.textContent = String(value);
    else if (key === "style") {
      for (const [name, setting] of Object.entries(value as Record<string, string>)) {
        element.style.setProperty(
          name.startsWith("--") ? name : name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
          setting,
        );
      }
    } else if (key === "on") {
      for (const [name, listener] of Object.entries(value as Record<string, EventListener>)) {
        listen(element, name as "click", listener);
      }
    } else element.setAttribute(key, value === true ? "" : String(value));
  }
}

/** Appends children: strings and numbers as text, nothing for null, undefined and false. */
export function append(parent: Node, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** What follows the tag: properties, if any, and children. */
type Rest = [props: Props | null | undefined, ...children: Child[]] | Child[];

/** "div.a.b" is a div of the classes a and b. */
type Tag<K extends string> = K | `${K}.${string}`;

function fill(make: (tag: string) => Element, name: string, rest: Rest): Element {
  const [tag, ...classes] = name.split(".");
  const element = make(tag as string);
  // Else it would send a form that the page may have around the output.
  if (tag === "button") element.setAttribute("type", "button");
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const [first, ...others] = rest;
  const plain = typeof first === "object" && !(first instanceof Node);
  if (plain && first) setAll(element as HTMLElement, first);
  append(element, plain ? (others as Child[]) : (rest as Child[]));
  return element;
}

/**
 * An HTML element: h("div.pane", { title: "…" }, "text", child). Properties may be left out. Of them `class` (in place of that of the tag),
 * `text`, `style` (an object) and `on` (handlers by event) are special, the rest are attributes.
 */
export function h<K extends keyof HTMLElementTagNameMap>(tag: Tag<K>, ...rest: Rest): HTMLElementTagNameMap[K] {
  return fill((name) => document.createElement(name), tag, rest) as HTMLElementTagNameMap[K];
}

/** An SVG element; attributes as in the SVG specification, plus the special ones of `h`. */
export function s<K extends keyof SVGElementTagNameMap>(tag: Tag<K>, ...rest: Rest): SVGElementTagNameMap[K] {
  return fill((name) => document.createElementNS(SVG, name), tag, rest) as SVGElementTagNameMap[K];
}

/** Calls `fn` at each event of a type. */
export function listen<K extends keyof HTMLElementEventMap>(
  target: EventTarget,
  type: K,
  fn: (event: HTMLElementEventMap[K]) => void,
  options?: AddEventListenerOptions,
): void {
  target.addEventListener(type, fn as EventListener, options);
}

/** The event ends here: neither the browser nor the notebook acts on it too. */
export function handled(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

/** CSS pixels of the page in one of an element: JupyterLab zooms a panel by CSS. Browsers that do not tell it do not zoom so. */
export const zoomOf = (element: Element): number => (element as { currentCSSZoom?: number }).currentCSSZoom ?? 1;

/** Where an element stands: client coordinates, in its own pixels. */
export function boxOf(element: Element): DOMRect {
  const box = element.getBoundingClientRect();
  const zoom = zoomOf(element);
  if (zoom === 1) return box;
  return new DOMRect(box.x / zoom, box.y / zoom, box.width / zoom, box.height / zoom);
}

/** Where the pointer is in an element, in its own pixels from its left and upper edges. */
export function pointIn(event: MouseEvent, element: Element): { x: number; y: number } {
  const { left, top } = boxOf(element);
  const zoom = zoomOf(element);
  return { x: event.clientX / zoom - left, y: event.clientY / zoom - top };
}

/** How far from the left edge of an element the pointer is, as a part of its width. */
export const shareAt = (event: MouseEvent, element: Element): number =>
  pointIn(event, element).x / Math.max(1, boxOf(element).width);

/** Whether a key was pressed with Ctrl, ⌘ or Alt: such keys belong to the notebook. */
export const modified = (event: KeyboardEvent): boolean => event.ctrlKey || event.metaKey || event.altKey;

/** Removes every child. In one step: Chrome fires blur while it removes the element in focus, and a handler may clear, too. */
export function clear(element: ParentNode): void {
  element.replaceChildren();
}

/** The nodes of a text in which **double asterisks** mark bold; everything else is literal. */
export function marked(text: string): Node[] {
  return text.split(/\*\*(.+?)\*\*/gs).flatMap((part, index): Node[] => {
    if (part === "") return [];
    return [index % 2 ? h("b", part) : document.createTextNode(part)];
  });
}

/** What an error says. */
export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

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
        element.addEventListener(name, listener);
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

/** An HTML element. `class`, `text`, `style` (an object) and `on` (handlers by event) are special, the rest are attributes. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props?: Props | null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (props) setAll(element, props);
  append(element, children);
  return element;
}

/** An SVG element; attributes as in the SVG specification, plus the special ones of `h`. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props?: Props | null,
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag) as SVGElementTagNameMap[K];
  if (props) setAll(element, props);
  append(element, children);
  return element;
}

/** Removes every child. */
export function clear(element: Node): void {
  while (element.lastChild) element.removeChild(element.lastChild);
}

/** The nodes of a text in which **double asterisks** mark bold; everything else is literal. */
export function marked(text: string): Node[] {
  return text.split(/\*\*(.+?)\*\*/gs).flatMap((part, index): Node[] => {
    if (part === "") return [];
    return [index % 2 ? h("b", null, part) : document.createTextNode(part)];
  });
}

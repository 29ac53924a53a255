import { describe, expect, it } from "vitest";
import { keepWheel, onWheel } from "../lib/wheel.js";

/** An element, as far as it is needed: something with attributes that gets events. */
class Part extends EventTarget {
  private readonly names = new Set<string>();
  setAttribute(name: string): void {
    this.names.add(name);
  }
  hasAttribute(name: string): boolean {
    return this.names.has(name);
  }
}

/** A turn of the wheel over the first of `path`, as a page's window gets it. */
function turn(page: EventTarget, path: readonly EventTarget[], ctrlKey: boolean): Event {
  const event = Object.assign(new Event("wheel", { cancelable: true }), { ctrlKey });
  Object.defineProperty(event, "composedPath", { value: () => [...path, page] });
  page.dispatchEvent(event);
  return event;
}

describe("Ctrl+wheel", () => {
  /** A page that zooms its panels, after the extension was loaded; `zoomed` are the events that reached it. */
  function page() {
    const target = new EventTarget();
    const zoomed: Event[] = [];
    const turned: Event[] = [];
    keepWheel(target);
    target.addEventListener("wheel", (event) => zoomed.push(event), { capture: true });
    const lanes = new Part();
    onWheel(lanes as unknown as HTMLElement, (event) => {
      turned.push(event);
      event.preventDefault();
    });
    return { target, lanes, zoomed, turned };
  }

  it("over what zooms itself zooms that alone, and neither panel nor browser", () => {
    const { target, lanes, zoomed, turned } = page();
    const event = turn(target, [new Part(), lanes, new Part()], true);
    expect(turned).toEqual([event]);
    expect(event.defaultPrevented).toBe(true);
    expect(zoomed).toEqual([]);
  });
  it("elsewhere is the page's", () => {
    const { target, zoomed, turned } = page();
    const event = turn(target, [new Part(), new EventTarget()], true);
    expect([zoomed, turned]).toEqual([[event], []]);
    expect(event.defaultPrevented).toBe(false);
  });
  it("without Ctrl goes its usual way", () => {
    const { target, lanes, zoomed, turned } = page();
    turn(target, [lanes], false);
    expect([zoomed.length, turned.length]).toEqual([1, 0]);
  });
});

/**
 * One budget of memory for all dashboards of a page: those far out of view rest, the ones seen longest ago first, until the
 * others fit into it. What is in view is always drawn.
 */

/** Bytes that the dashboards of a page take together before one that is far out of view has to rest. */
const BUDGET = 64e6;

/** What an element of the page costs with its styles and listeners, and a byte of a payload once it is opened (measured in Chromium). */
const ELEMENT = 1600;
const OPENED = 1.6;

export interface Guest {
  /** Bytes; 0 while it rests. */
  weight(): number;
  /** Out of view by more than a screen, and without the focus. */
  far(): boolean;
  /** When it was last near, in ms. */
  seen: number;
  rest(): void;
}

/** Several bundles may be on one page, as that of JupyterLab and one for each widget: they share what they spend. */
const SHARED = Symbol.for("nbprof.outputs");
const page = globalThis as unknown as Record<symbol, { guests: Set<Guest>; budget: number }>;
page[SHARED] ??= { guests: new Set(), budget: BUDGET };
const { guests, budget: given } = page[SHARED];

export function enter(guest: Guest): void {
  guests.add(guest);
}

export function leave(guest: Guest): void {
  guests.delete(guest);
}

/** Lets those rest that the budget has no room for; returns the bytes of the others. */
export function settle(budget = given, all: Iterable<Guest> = guests): number {
  const weighed = [...all].map((guest) => ({ guest, weight: guest.weight() }));
  let total = weighed.reduce((sum, { weight }) => sum + weight, 0);
  const idle = weighed.filter(({ guest, weight }) => weight > 0 && guest.far());
  idle.sort((a, b) => a.guest.seen - b.guest.seen);
  for (const { guest, weight } of idle) {
    if (total <= budget) break;
    guest.rest();
    total -= weight;
  }
  return total;
}

/** The bytes of a payload when it is opened: gzip notes its length, up to 4 GiB, at its end. */
export function openedBytes(packed: Uint8Array): number {
  const gzip = packed[0] === 0x1f && packed[1] === 0x8b && packed.length > 18;
  if (!gzip) return packed.length * OPENED;
  const { buffer, byteOffset, byteLength } = packed;
  return new DataView(buffer, byteOffset + byteLength - 4).getUint32(0, true) * OPENED;
}

/** The bytes of what is drawn in a shadow root. */
export function drawnBytes(root: ParentNode): number {
  let bytes = root.querySelectorAll("*").length * ELEMENT;
  // A picture is painted in memory first where it has many slices.
  for (const { width, height } of root.querySelectorAll("canvas")) bytes += width * height * 8;
  return bytes;
}

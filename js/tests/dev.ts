/** The dev page: dev.html#steps=21&theme=dark&tab=input&first=9&bin=payload.bin */

import { mount } from "../hosts/page.js";
import type { TabId } from "../lib/payload.js";
import { sample } from "./sample.js";

const ask = new URLSearchParams(location.hash.slice(1));
const here = document.getElementById("here") as HTMLElement;
document.documentElement.dataset.theme = ask.get("theme") ?? "light";
const bin = ask.get("bin");
const payload = bin
  ? new Uint8Array(await (await fetch(bin)).arrayBuffer())
  : sample({ steps: Number(ask.get("steps") ?? 21), firstFactor: Number(ask.get("first") ?? 1) });
await mount(here, payload, { tab: (ask.get("tab") ?? "overview") as TabId });
document.title = "ready";

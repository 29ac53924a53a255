/** "What is this?": a few sentences on each view, and in JupyterLab the way to its page. The same words open the sections of docs/views.md. */

import { h, marked } from "../lib/dom.js";
import { link } from "../lib/parts.js";
import type { Marked, TabId } from "../lib/payload.js";

export const ABOUT: Record<TabId, Marked> = {
  overview:
    "What limits this run, and what to try first. The sentence at the top names the category that most of a step goes to. **Average step** divides the mean step into categories that add up to it; each moment counts once. Next steps are ordered by what each could save at most.",
  input:
    "Whether steps wait for data, and why. The **device side** shows each step divided into categories. The **host side** shows what the input work is made of: reading, preprocessing, copying, enqueuing. The graph shows the tf.data pipeline, and outlines the iterator to change first.",
  ops: "Which operations of the framework took the time, apart for the device and the host. **Self** time leaves out the operations inside, so it adds up; **total** time includes them. Rows can be put together by type or by layer. A click on a row shows its longest call in the trace.",
  op_profile:
    "Where the time of compiled XLA programs goes, as a tree: a program, the categories of its ops, the ops, and what is inside a fusion. The full part of a bar is what the op would take at the peak of what it uses best, the pale part is **wasted**. **FLOPS** and **Memory** say how much of the device's peaks is used.",
  hlo: "How near each op of a compiled XLA program comes to what the device can do. The rising line is what memory allows at so many FLOPs a byte, the flat one the **peak** of computing; they meet at the **ridge point**. **Of roof** is how near an op comes to the lower of the two. The area of a point is the op's self time.",
  kernels:
    "What ran on the GPU or NPU: one row for each kernel, operation and launch shape. **TC elig.** says whether the operation could use TensorCores, **used** whether the kernel does. **Occup.** is how much of a multiprocessor its warps fill.",
  device_time:
    "What devices did with their time, and what they waited for. Each moment counts once: as **compute**, else **communication**, else **memory**, else **idle**. The **critical path** is the chain of work on host and devices that the step could not have been shorter without. A click on a row of it shows its longest piece in the trace.",
  ascend:
    "Where the time of an iteration goes on an NPU, by the tables of Ascend's profiler. **Data Aug Bound** is the wait before FP Start, **FP to BP** the forward and backward pass, **Grad Refresh** what follows. The rules are those of Ascend's own tools. A click on an op or a stream shows its longest task or wait in the trace.",
  memory:
    "What an allocator held over time. **Stack** is reserved for programs, **heap** is allocated by operations; together they are in use. The table lists what was alive at the peak, or at the point that is clicked. **Fragmentation** is the part of the free memory outside its largest block.",
  allocator:
    "What PyTorch's caching allocator held. **Reserved** memory is what it has from the device, in segments; blocks in use lie in them. Free memory is **stranded** where blocks in use keep its segment from being given back; **fragmentation** is stranded by reserved. The map shows each segment with its blocks.",
  memory_viewer:
    "How the compiler planned the memory of an XLA program. The **working set** is what lives **throughout** (parameters, results, constants) and the temporary buffers above it, from one program point to the next. **Padding** is what layouts add. The bars are the buffers alive at the peak; pointing at one draws its lifetime.",
  pods: "Each step on each worker: hosts, cores or ranks. It shows which worker is slow, in which category, and how far apart workers are. Steps are matched by when they ran. A click on a worker of a step shows it in the trace.",
  trace:
    "Every recorded event on its lane, over time: devices first, then the threads of the host. Bars in the colour of a category belong to it, the others are coloured by name. Ctrl+wheel or W and S zoom, dragging or A and D pan. Where events are closer together than pixels, a mark stands for several.",
  compare:
    "Two runs side by side. A change is **real** where the 95% interval of the difference of the step times leaves 0 out, whatever a few slow steps do to it; what else differs between the runs is listed. Bars grow to the left where the second run takes less. A click on an op shows it in the trace of the second run.",
};

/** In JupyterLab nbprof's plugin says on the page that it has Help, and listens for this event. */
export const HELP_EVENT = "nbprof-help";
const HAS_HELP = "nbprofHelp";

const hasHelp = (): boolean => HAS_HELP in document.body.dataset;
export const offerHelp = (): void => {
  document.body.dataset[HAS_HELP] = "";
};

let serial = 0;

/** The button at the head of a view, and what it opens. `name` is that of the view's tab. */
export function about(id: TabId, name: string): HTMLElement[] {
  const text = h("div.about", {
    id: `nbp-about-${++serial}`,
    role: "note",
    "aria-label": `About ${name}`,
    hidden: true,
  });
  const flip = (): void => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
    if (text.firstChild) return;
    const more = link("More in Help →", () => {
      text.dispatchEvent(new CustomEvent(HELP_EVENT, { bubbles: true, composed: true, detail: id }));
    });
    text.append(h("p", ...marked(ABOUT[id]), hasHelp() && " ", hasHelp() && more));
  };
  const button = h(
    "button",
    {
      class: "what",
      "aria-expanded": "false",
      "aria-controls": text.id,
      "aria-label": `What is ${name}?`,
      on: { click: flip },
    },
    "What is this?",
  );
  return [button, text];
}

/** Why a cell cannot be profiled, in a sentence. */

export const PYTHON = /^i?python/i;

export interface Facts {
  /** Of the active cell; null: no notebook, or none in it. */
  cell: string | null;
  /** The kernel of the notebook. */
  kernel: { status: string; name: string; language: string | null } | null;
  /** A kernel is on its way. */
  starting: boolean;
}

const GONE = new Set(["dead", "terminating"]);

/** Empty where nothing stands in the way. */
export function whyNot({ cell, kernel, starting }: Facts): string {
  if (cell === null) return "Open a notebook and select the cell to profile.";
  if (cell !== "code") return `A ${cell} cell has nothing to profile. Select a code cell.`;
  if (!kernel) {
    return starting
      ? "The kernel is starting; cells can be profiled once it is ready."
      : "This notebook has no kernel. Choose a Python kernel to profile a cell.";
  }
  if (GONE.has(kernel.status)) return "The kernel has died. Restart it to profile a cell.";
  if (kernel.language && !PYTHON.test(kernel.language)) {
    return `nbprof profiles Python; the kernel of this notebook (${kernel.name}) runs ${kernel.language}.`;
  }
  return "";
}

interface Specs {
  kernelspecs: Record<string, { language?: string; display_name?: string } | undefined>;
}

/** The language of a kernel: by its specification, or what the notebook says; null where neither does. */
export function languageOf(
  name: string,
  specs: Specs | null,
  model: { getMetadata(key: string): unknown } | null,
): string | null {
  const known = specs?.kernelspecs[name]?.language;
  if (known) return known;
  const language = model?.getMetadata("language_info") as { name?: string } | undefined;
  return language?.name ?? null;
}

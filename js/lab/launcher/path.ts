/** A path as a person types it, as the file browser has it. */

/** `root`: the folder that Jupyter serves, as the page knows it; such a path may be typed in full. */
export function contentsPath(typed: string, root: string): string {
  let path = typed.trim().replace(/^["'](.*)["']$/, "$1");
  const base = root.replace(/\/+$/, "");
  if (base && (path === base || path.startsWith(`${base}/`))) path = path.slice(base.length);
  return path.replace(/^(\.?\/)+/, "").replace(/\/+$/, "");
}

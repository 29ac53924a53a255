/** What the tabs are called: the list that Python has too. */

import names from "../../nbprof/tools/names.json";
import type { Marked, TabId } from "./payload.js";

export interface Name {
  id: TabId;
  /** What stands on the tab, and heads its section of docs/views.md. */
  label: string;
  /** "What is this?": the sentences that this section begins with. */
  about: Marked;
}

/** By id, in their order; that of a comparison is the last. */
export const NAMES = Object.fromEntries(names.map((name) => [name.id, name])) as Record<TabId, Name>;

/** The tree of folders and runs: its rows are kept as long as what they show; the keys and clicks on them. */

import { h, handled, listen } from "../../lib/dom.js";
import type { Group } from "./groups.js";
import { folderRow, noteRow, notes, type Row, runRow, set } from "./rows.js";
import type { Run } from "./run.js";
import { Selection } from "./selection.js";

const PAGE = 8;

/** What a tree tells. */
export interface Told {
  /** A run was double clicked. */
  open(): void;
  /** Something else is selected. */
  selected(): void;
  /** A folder was folded or unfolded. */
  folded(): void;
  /** The person wants to type into the filter. */
  search(): void;
}

export class Tree {
  readonly selection = new Selection();
  /** Whether somebody asked for the menu of a row. */
  asked = false;
  /** Folders of which only the head is shown. */
  folded = new Set<string>();
  readonly node = h("div.nbprof-runs-tree", { role: "tree", "aria-label": "Runs", "aria-multiselectable": "true" });
  private readonly rows = new Map<string, Row>();
  private lines: Row[] = [];
  private editing: { key: string; end(commit: boolean): void } | null = null;

  constructor(private readonly listeners: Told) {
    listen(this.node, "mousedown", (event) => this.press(event));
    listen(this.node, "dblclick", (event) => {
      const row = this.rowAt(event);
      if (row?.run && !this.editing) this.listeners.open();
    });
    listen(this.node, "contextmenu", (event) => {
      const row = this.rowAt(event);
      this.asked = row !== null;
      if (row && !this.selection.has(row.key)) this.act(() => this.selection.pick(row.key));
    });
    listen(this.node, "keydown", (event) => this.key(event));
  }

  /** The selected runs, as they stand. */
  get runs(): Run[] {
    return this.selection.keys.flatMap((key) => this.rows.get(key)?.run ?? []);
  }

  /** The folder whose row has the focus. */
  get folder(): Group | null {
    const { cursor } = this.selection;
    return (cursor !== null && this.rows.get(cursor)?.group) || null;
  }

  /** Draws the groups. Of rows that are there already, only what has changed. */
  show(groups: readonly Group[], now: number, busy: boolean, open: boolean): void {
    const focused = this.node.contains(document.activeElement) && !this.editing;
    const wanted: Row[] = [];
    const take = (key: string, create: () => Row): Row => {
      const row = this.rows.get(key) ?? create();
      this.rows.set(key, row);
      wanted.push(row);
      return row;
    };
    for (const group of groups) {
      const shut = !open && this.folded.has(group.path);
      take(`folder ${group.path}`, () => folderRow(`folder ${group.path}`)).update(
        { kind: "folder", group },
        now,
        !shut,
      );
      if (shut) continue;
      for (const run of group.runs) {
        const problem = group.broken.get(run.path) ?? "";
        take(`run ${run.path}`, () => runRow(`run ${run.path}`)).update(
          { kind: "run", run, before: group.before.get(run.path), problem },
          now,
          busy,
        );
      }
      for (const note of notes(group, busy)) {
        const key = `note ${group.path} ${note.text}`;
        take(key, () => noteRow(key)).update(note, now, busy);
      }
    }
    const keys = new Set(wanted.map(({ key }) => key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      if (this.editing?.key === key) this.editing.end(false);
      row.node.remove();
      this.rows.delete(key);
    }
    // A row that is where it should be is not touched: moving it would take the focus away.
    let next = this.node.firstElementChild;
    for (const { node } of wanted) {
      if (node === next) next = next.nextElementSibling;
      else this.node.insertBefore(node, next);
    }
    this.lines = wanted;
    this.selection.show(wanted.map(({ key, run }) => ({ key, run: run !== null })));
    this.mark();
    if (focused && !this.node.contains(document.activeElement)) this.focus();
    this.listeners.selected();
  }

  /** Gives the focus to the row on which the keys act. */
  focus(): void {
    const row = this.rows.get(this.selection.cursor ?? this.lines[0]?.key ?? "");
    if (!row) return;
    row.node.focus({ preventScroll: true });
    row.node.scrollIntoView({ block: "nearest" });
  }

  /** Selects runs by their paths, as far as they are shown. */
  select(paths: readonly string[]): void {
    this.selection.set(paths.map((path) => `run ${path}`));
    this.mark();
    this.listeners.selected();
  }

  /** Lets the person write another name in place; null where that was let go. */
  rename(run: Run): Promise<string | null> {
    const key = `run ${run.path}`;
    const row = this.rows.get(key);
    if (!row) return Promise.resolve(null);
    this.editing?.end(false);
    return new Promise((resolve) => {
      const input = h("input.nbprof-runs-name", {
        "aria-label": `New name of ${run.name}`,
        // The keys of the notebook, and of this list, are letters here.
        "data-lm-suppress-shortcuts": "true",
        spellcheck: "false",
      });
      input.value = run.name;
      const end = (commit: boolean): void => {
        if (this.editing?.key !== key) return;
        this.editing = null;
        const focused = document.activeElement === input || document.activeElement === document.body;
        input.replaceWith(row.name as HTMLElement);
        if (focused && row.node.isConnected) row.node.focus({ preventScroll: true });
        const name = input.value.trim();
        resolve(commit && name && name !== run.name ? name : null);
      };
      this.editing = { key, end };
      listen(input, "keydown", (event) => {
        event.stopPropagation();
        if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
        event.preventDefault();
        end(event.key === "Enter");
      });
      listen(input, "blur", () => end(true));
      row.name?.replaceWith(input);
      input.focus();
      input.select();
    });
  }

  private rowAt(event: Event): Row | null {
    const node = (event.target as Element).closest<HTMLElement>("[data-key]");
    return this.rows.get(node?.dataset["key"] ?? "") ?? null;
  }

  private press(event: MouseEvent): void {
    const row = this.rowAt(event);
    if (!row || (event.target as Element).closest("input") || event.button !== 0) return;
    // The browser would give the focus to what is under the pointer, and mark text.
    event.preventDefault();
    const held = { toggle: event.ctrlKey || event.metaKey, extend: event.shiftKey };
    this.editing?.end(true);
    this.act(() => this.selection.pick(row.key, held));
    if (row.group && !held.toggle && !held.extend) this.fold(row.group.path);
  }

  private fold(path: string, shut = !this.folded.has(path)): void {
    if (shut === this.folded.has(path)) return;
    if (shut) this.folded.add(path);
    else this.folded.delete(path);
    this.listeners.folded();
  }

  private key(event: KeyboardEvent): void {
    if (event.altKey || this.editing) return;
    const held = { toggle: event.ctrlKey || event.metaKey, extend: event.shiftKey };
    const go = (by: number): void => this.act(() => this.selection.move(by, held));
    const row = this.rows.get(this.selection.cursor ?? "");
    const index = row ? this.lines.indexOf(row) : -1;
    switch (event.key) {
      case "ArrowDown":
        go(1);
        break;
      case "ArrowUp":
        go(-1);
        break;
      case "PageDown":
        go(PAGE);
        break;
      case "PageUp":
        go(-PAGE);
        break;
      case "Home":
        go(Number.NEGATIVE_INFINITY);
        break;
      case "End":
        go(Number.POSITIVE_INFINITY);
        break;
      case " ":
        this.act(() => this.selection.toggle());
        break;
      case "ArrowRight":
        if (!row?.group) return;
        if (this.folded.has(row.group.path)) this.fold(row.group.path, false);
        else go(1);
        break;
      case "ArrowLeft": {
        if (row?.group) this.fold(row.group.path, true);
        else {
          const above = this.lines.slice(0, Math.max(0, index)).findLast(({ key }) => this.rows.get(key)?.group);
          if (above) this.act(() => this.selection.pick(above.key));
        }
        break;
      }
      case "Enter":
        // Of a run it is a command, which the person may put on another key.
        if (!row?.group) return;
        this.fold(row.group.path);
        break;
      case "Escape":
        this.act(() => this.selection.none());
        break;
      case "/":
        this.listeners.search();
        break;
      case "a":
      case "A":
        if (!held.toggle) return;
        this.act(() => this.selection.all());
        break;
      default:
        return;
    }
    handled(event);
  }

  private act(change: () => void): void {
    change();
    this.mark();
    this.focus();
    this.listeners.selected();
  }

  /** Says on each row whether it is selected, and which one Tab leads to. */
  private mark(): void {
    const stop = this.selection.cursor ?? this.lines[0]?.key;
    for (const row of this.rows.values()) {
      if (row.run) set(row.node, "aria-selected", String(this.selection.has(row.key)));
      set(row.node, "tabindex", row.key === stop ? "0" : "-1");
    }
  }
}

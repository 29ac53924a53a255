/** Which rows of the tree are selected, and on which the keys act: the rules of the file browser, without the page. */

/** A row: a run, or what cannot be selected: a folder, a note. */
export interface Row {
  readonly key: string;
  readonly run: boolean;
}

export interface Held {
  /** Ctrl or ⌘: the others stay selected. */
  readonly toggle: boolean;
  /** Shift: all from the last one that was chosen alone. */
  readonly extend: boolean;
}

const NOTHING: Held = { toggle: false, extend: false };

export class Selection {
  private rows: readonly Row[] = [];
  private places = new Map<string, number>();
  private anchor: string | null = null;
  private picked = new Set<string>();
  private here: string | null = null;

  /** The row that has the focus. */
  get cursor(): string | null {
    return this.here;
  }

  /** The selected runs, as they stand. */
  get keys(): string[] {
    return this.rows.filter(({ key }) => this.picked.has(key)).map(({ key }) => key);
  }

  has(key: string): boolean {
    return this.picked.has(key);
  }

  /** The rows as they are shown now. What is not shown is not selected; the cursor goes to where it was. */
  show(rows: readonly Row[]): void {
    const place = this.here === null ? -1 : (this.places.get(this.here) ?? -1);
    this.rows = rows;
    this.places = new Map(rows.map(({ key }, index) => [key, index]));
    for (const key of this.picked) if (!this.places.has(key)) this.picked.delete(key);
    if (this.anchor !== null && !this.places.has(this.anchor)) this.anchor = null;
    if (this.here === null || this.places.has(this.here)) return;
    this.here = rows[Math.min(place, rows.length - 1)]?.key ?? null;
  }

  /** A row was clicked, or moved to. */
  pick(key: string, held: Held = NOTHING): void {
    const row = this.rows[this.places.get(key) ?? -1];
    if (!row) return;
    this.here = key;
    if (held.extend) {
      this.stretch(key, held.toggle);
    } else if (held.toggle) {
      if (row.run) this.flip(key);
      this.anchor = key;
    } else {
      this.picked = new Set(row.run ? [key] : []);
      this.anchor = key;
    }
  }

  /** Moves by some rows; with Ctrl only the cursor goes. Infinity is the end. */
  move(by: number, held: Held = NOTHING): void {
    const place = this.here === null ? -1 : (this.places.get(this.here) ?? -1);
    const from = place < 0 && by < 0 ? this.rows.length : place;
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, from + by))];
    if (!row) return;
    if (held.toggle && !held.extend) this.here = row.key;
    else this.pick(row.key, held);
  }

  /** Space: selects the run at the cursor, or lets go of it. */
  toggle(): void {
    if (this.here !== null) this.pick(this.here, { toggle: true, extend: false });
  }

  all(): void {
    this.picked = new Set(this.rows.filter(({ run }) => run).map(({ key }) => key));
  }

  none(): void {
    this.picked.clear();
  }

  /** Makes these the selected ones, the first with the cursor, as far as they are shown. */
  set(keys: readonly string[]): void {
    const shown = keys.filter((key) => this.places.has(key));
    this.picked = new Set(shown);
    this.anchor = this.here = shown[0] ?? this.here;
  }

  private flip(key: string): void {
    if (!this.picked.delete(key)) this.picked.add(key);
  }

  private stretch(key: string, more: boolean): void {
    const start = this.places.get(this.anchor ?? key) ?? 0;
    const end = this.places.get(key) ?? 0;
    const between = this.rows.slice(Math.min(start, end), Math.max(start, end) + 1).filter(({ run }) => run);
    if (!more) this.picked.clear();
    for (const row of between) this.picked.add(row.key);
  }
}

/** When to look again by oneself: seldom, and more seldom where nothing happens. */

const FIRST_MS = 30_000;
const LAST_MS = 5 * 60_000;

/** Calls something later; gives what takes that back. */
export type Later = (fn: () => void, ms: number) => () => void;

export class Pace {
  private wait = FIRST_MS;
  private stop: (() => void) | null = null;
  private turn = 0;

  /** `look` says whether anything was new. */
  constructor(
    private readonly look: () => Promise<boolean>,
    private readonly later: Later,
  ) {}

  /** Starts anew from the shortest pause, or stops. */
  run(on: boolean): void {
    this.turn++;
    this.stop?.();
    this.stop = null;
    this.wait = FIRST_MS;
    if (on) this.plan();
  }

  private plan(): void {
    const turn = this.turn;
    this.stop = this.later(() => {
      void this.look().then((news) => {
        if (turn !== this.turn) return;
        this.wait = news ? FIRST_MS : Math.min(LAST_MS, this.wait * 2);
        this.plan();
      });
    }, this.wait);
  }
}

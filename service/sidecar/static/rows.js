// The panel of one view's rows.

import { at, say } from "./elements.js";
import { counted, grouped } from "./figures.js";
import { Chips } from "./chips.js";
import { RowSet } from "./rowset.js";
import { RowTable } from "./rowtable.js";

const MOST_IN_TABLE = 60;
const EVERY_MS = 120;
export const MOST_ROWS = 100_000;

export class Rows {
  constructor(scroller) {
    this.scroller = scroller;
    this.set = null;
    this.pending = [];
    this.drawn = 0;
    this.dirty = false;
    this.problem = "";
    this.hint = "";
    scroller.addEventListener(
      "scroll",
      () => {
        this.dirty = true;
        this.drawn = 0;
      },
      { passive: true },
    );
    new ResizeObserver(() => {
      this.dirty = true;
    }).observe(scroller);
  }

  /** Begin with another view: {name, columns: [{name, type}], key: [name], rows}. */
  reset(about) {
    this.about = about;
    this.set = new RowSet(about);
    const pairs = about.columns.length === 2 && about.key.length === 1 && about.rows > MOST_IN_TABLE;
    const Drawer = about.columns.length === 1 || pairs ? Chips : RowTable;
    this.drawer = new Drawer(this.scroller, about, (sorted) => this.sort(sorted));
    this.scroller.scrollTop = 0;
    this.pending = [];
    this.dirty = false;
    this.hint = "";
    say(at("note"), "");
  }

  /** How many rows a first page must have, so that what the person looks at is among them. */
  get reach() {
    const { scrollTop, clientHeight } = this.scroller,
      { lineHeight, perLine } = this.drawer;
    return scrollTop ? Math.min(MOST_ROWS, Math.ceil((scrollTop + 2 * clientHeight) / lineHeight) * perLine) : 0;
  }

  /** The first page of other rows of the same view; what the person looks at stays where it is. */
  begin(rows, hasMore) {
    const { find } = this.set;
    this.set.clear();
    this.set.find = find;
    this.pending = [];
    this.append(rows, hasMore);
  }

  append(rows, hasMore) {
    this.problem = "";
    this.set.append(rows, hasMore);
    this.dirty = true;
  }

  /** Changes are collected and applied together with the next drawing. */
  add(changes) {
    for (const change of changes) this.pending.push(change);
  }

  filter(text) {
    this.set?.filter(text);
    this.scroller.scrollTop = 0;
    this.drawn = 0;
    this.dirty = true;
  }

  /** Show the rows by a column: {name, descending}; null: in the order of the key. */
  sort(sorted) {
    this.set.sort(sorted);
    this.drawer.sorted(sorted);
    this.scroller.scrollTop = 0;
    this.drawn = 0;
    this.dirty = true;
  }

  /** What went wrong with reading, in the place where rows would be explained. */
  fail(words) {
    this.problem = words;
    this.dirty = true;
  }

  /** Draw if there is reason to; called with each frame. */
  draw(now) {
    if (!this.set || now - this.drawn < EVERY_MS) return;
    const changes = this.pending;
    if (changes.length) {
      this.pending = [];
      this.set.apply(changes, now);
    }
    const purged = this.set.purge(now);
    // What lights up must be drawn once more when it has been seen.
    const fading = now - (this.changedAt ?? -1e9) < 2000;
    if (changes.length) this.changedAt = now;
    if (!changes.length && !purged && !this.dirty && !fading) return;
    this.dirty = false;
    this.drawn = now;
    this.drawer.draw(this.set, now);
    // Columns are fitted before rows are made: a wider value needs another drawing, also when no change comes.
    this.dirty = this.drawer.changed === true;
    this.#explain();
  }

  #explain() {
    const { set } = this,
      { found } = set;
    let words = this.problem;
    if (!words && set.find)
      words = found
        ? `${counted(found, "row")} with “${set.find}”.`
        : `No row has “${set.find}”. Esc, then / to look for another.`;
    else if (!words && !set.all.length) words = "No rows at this time.";
    if (!words && set.edge) {
      const which = set.sorted ? `By ${set.sorted.name}: of the` : "The";
      const others = `For others ask /v1/views/${this.about.name}?where=…`;
      words = `${which} first ${grouped(set.size)} rows in the order of the key. ${others}`;
    }
    if (!words && this.hint) words = this.hint;
    say(at("note"), words);
  }
}

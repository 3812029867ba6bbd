// A window over many rows: only the lines on the screen have elements, and those are kept from drawing to drawing.

import { clockParts } from "./time.js";

const OVERSCAN = 6;
const WIDEST = 44;
export const LIT_MS = 1600;

/** A value as shown. */
export function shownValue(value, type) {
  if (value === null) return "null";
  if (type.startsWith("TimestampNs")) return clockParts(BigInt(value)).join("");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** How many characters a text takes, up to what a cell shows. */
export const widthOf = (text) => Math.min(WIDEST, text.length);

/**
 * Subclasses have `body`, `lineHeight`, `perLine`, and fit(set), make(entry), mark(element, entry, set, now),
 * place(element, i), pad(above, below).
 */
export class Windowed {
  constructor(scroller, about) {
    this.scroller = scroller;
    this.about = about;
    this.kept = new Map();
    this.perLine = 1;
  }

  /** Draw the lines on the screen; `now` in ms. */
  draw(set, now) {
    this.fit(set);
    const rows = set.shown,
      lines = Math.ceil(rows.length / this.perLine);
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.min(lines, Math.max(0, Math.floor(scrollTop / this.lineHeight) - OVERSCAN));
    const last = Math.min(lines, Math.ceil((scrollTop + clientHeight) / this.lineHeight) + OVERSCAN);
    const wanted = rows.slice(first * this.perLine, last * this.perLine);
    const before = this.kept;
    this.kept = new Map(wanted.map((entry) => [entry, this.#element(before.get(entry), entry)]));
    for (const [entry, { element }] of before) if (this.kept.get(entry)?.element !== element) element.remove();
    let next = this.first;
    let i = first * this.perLine;
    for (const [entry, { element }] of this.kept) {
      if (element === next) next = next.nextElementSibling;
      else this.body.insertBefore(element, next);
      this.mark(element, entry, set, now);
      this.place?.(element, i);
      i += 1;
    }
    this.pad(first, lines - last);
  }

  /** Another element only where the multiplicity shown is another one; a row that goes keeps the one that it had. */
  #element(known, entry) {
    if (known && (entry.count === 0 || known.count === entry.count)) return known;
    return { element: this.make(entry), count: entry.count };
  }
}

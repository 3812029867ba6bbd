// The rows of one view at one time: a sorted multiset that changes are applied to, a batch at a time.

import { columnOrder, rowOrder } from "./order.js";

const MOST_LIT = 200;
const DIFF = "_diff";
export const FADE_MS = 500;

/** The first place, not before `low`, of an entry that is not before `values`. */
function placeOf(entries, values, low, compare) {
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(entries[middle].values, values) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Sorted entries without some and with others, in one pass over them. */
function merged(entries, removed, added, compare) {
  const next = [];
  let from = 0;
  const keep = (to) => {
    for (; from < to; from += 1) if (!removed.has(entries[from])) next.push(entries[from]);
  };
  for (const entry of [...added].sort((a, b) => compare(a.values, b.values))) {
    keep(placeOf(entries, entry.values, from, compare));
    next.push(entry);
  }
  keep(entries.length);
  return next;
}

/**
 * Entries are {id, key, values, count, lit, gone, was}: `lit` is when it last came (ms), `gone` when it went (it
 * stays for a moment, so that a person sees it go), `was` the values of the same key that it took the place of.
 */
export class RowSet {
  constructor(about) {
    this.about = about;
    this.names = about.columns.map((column) => column.name);
    this.keyNames = about.key;
    this.compare = rowOrder(about);
    this.find = "";
    this.sorted = null;
    this.clear();
  }

  clear() {
    this.all = [];
    this.ordered = null;
    this.byId = new Map();
    this.leaving = new Set();
    this.edge = null;
    this.hot = false;
    this.shown = this.all;
  }

  /** How many rows are shown, not counting those that just went. */
  get found() {
    if (!this.find) return this.size;
    let going = 0;
    for (const entry of this.leaving) if (this.#text(entry).includes(this.find)) going += 1;
    return this.shown.length - going;
  }

  /** How many rows are known, not counting those that just went. */
  get size() {
    return this.byId.size - this.leaving.size;
  }

  /**
   * Add a page of rows as the server sent it: in order, behind all that are here. hasMore: there are rows behind it.
   */
  append(rows, hasMore) {
    const added = rows.map((row) => {
      const { [DIFF]: count = 1, ...values } = row;
      return this.#entry(this.#id(values), values, count);
    });
    for (const entry of added) {
      this.byId.set(entry.id, entry);
      this.all.push(entry);
    }
    this.#reorder(new Set(), added);
    this.edge = hasMore && this.all.length ? this.all.at(-1).values : null;
    this.#filter();
  }

  /**
   * Apply changes [{row, diff}]. Rows behind the edge stay unknown. Where everything changes at once, single
   * rows cannot be followed: then nothing fades, and `hot` says so.
   */
  apply(changes, now) {
    const touched = new Map();
    for (const { row, diff } of changes) {
      if (this.edge && this.compare(row, this.edge) > 0) continue;
      const id = this.#id(row);
      let entry = touched.get(id)?.entry ?? this.byId.get(id);
      entry ??= this.#entry(id, row, 0);
      if (!touched.has(id)) touched.set(id, { entry, before: entry.count });
      entry.count += diff;
    }
    const went = new Map(),
      came = [],
      removed = new Set();
    for (const { entry, before } of touched.values()) {
      if (entry.count === before) continue;
      if (entry.count === 0) went.set(entry.key, entry);
      else if (before === 0) came.push(entry);
      else entry.lit = now;
    }
    this.hot = touched.size > MOST_LIT;
    const added = [];
    for (const entry of came) {
      const old = went.get(entry.key);
      entry.was = old?.values ?? null;
      entry.lit = now;
      if (old) {
        went.delete(entry.key);
        removed.add(old);
      }
      if (this.byId.has(entry.id)) this.#stay(entry);
      else added.push(entry);
    }
    // A key may have several rows: those that `went` by that key alone are looked up again.
    for (const { entry, before } of touched.values()) {
      if (entry.count !== 0 || before === 0 || removed.has(entry)) continue;
      if (this.hot) removed.add(entry);
      else this.#leave(entry, now);
    }
    this.#change(removed, added);
  }

  /** Drop the rows that went a moment ago; returns whether there were any. */
  purge(now) {
    const removed = new Set([...this.leaving].filter((entry) => now - entry.gone > FADE_MS));
    if (removed.size) this.#change(removed, []);
    return removed.size > 0;
  }

  /** Show only rows in which a column has the text. */
  filter(text) {
    this.find = text.trim().toLowerCase();
    this.#filter();
  }

  /** Show rows by a column: {name, descending}; null: in the order of the key. */
  sort(sorted) {
    this.sorted = sorted;
    this.ordered = null;
    this.#reorder(new Set(), this.all);
    this.#filter();
  }

  #entry(id, values, count) {
    return { id, key: this.#key(values), values, count, lit: 0, gone: 0, was: null, text: null };
  }

  #leave(entry, now) {
    entry.gone = now;
    this.leaving.add(entry);
  }

  #stay(entry) {
    entry.gone = 0;
    this.leaving.delete(entry);
  }

  /** One pass over the rows, whatever the number of changes. */
  #change(removed, added) {
    if (!removed.size && !added.length) return;
    for (const entry of removed) {
      this.byId.delete(entry.id);
      this.leaving.delete(entry);
    }
    this.all = merged(this.all, removed, added, this.compare);
    for (const entry of added) this.byId.set(entry.id, entry);
    this.#reorder(removed, added);
    this.#filter();
  }

  /** The rows by the column that they are sorted by: what comes and goes is merged in, nothing is sorted again. */
  #reorder(removed, added) {
    if (!this.sorted) return;
    const { name, descending } = this.sorted;
    const compare = columnOrder(this.about, name, descending, this.compare);
    this.ordered = merged(this.ordered ?? [], removed, added, compare);
  }

  #filter() {
    const rows = this.ordered ?? this.all;
    this.shown = this.find ? rows.filter((entry) => this.#text(entry).includes(this.find)) : rows;
  }

  #text(entry) {
    entry.text ??= this.names
      .map((name) => JSON.stringify(entry.values[name]) ?? "")
      .join(" ")
      .toLowerCase();
    return entry.text;
  }

  #id(values) {
    return JSON.stringify(this.names.map((name) => values[name]));
  }

  #key(values) {
    return JSON.stringify(this.keyNames.map((name) => values[name]));
  }
}

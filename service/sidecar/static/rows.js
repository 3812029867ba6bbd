// The rows of one view: chips for narrow views, a table for others; what changed is seen to change.

import { clockParts } from "./time.js";

const MOST = 2000;
const MOST_IN_TABLE = 60;
const MOST_LIT = 200;
const DIFF = "_diff";

/** Compare as the server orders rows: nulls first, numbers by value, then text. */
function compareValues(a, b) {
  if (a === b) return 0;
  if (a === null) return -1;
  if (b === null) return 1;
  const numeric = (value) => typeof value === "number" || (typeof value === "string" && /^-?\d+$/.test(value));
  if (numeric(a) && numeric(b)) {
    const [x, y] = [BigInt(Number.isInteger(Number(a)) ? a : Math.trunc(a)), BigInt(Number.isInteger(Number(b)) ? b : Math.trunc(b))];
    return x < y ? -1 : x > y ? 1 : Number(a) - Number(b);
  }
  return a < b ? -1 : 1;
}

export class Rows {
  constructor(place) {
    this.place = place;
    this.reset(null);
  }

  static get most() {
    return MOST;
  }

  /** Begin with another view: {columns: [{name, type}], key: [name]}. */
  reset(about) {
    this.about = about;
    this.rows = new Map();
    this.elements = new Map();
    this.dirty = new Map();
    this.hot = [];
    this.find = "";
    this.edge = null;
    this.place.replaceChildren();
    if (!about) return;
    this.names = about.columns.map((column) => column.name);
    const rest = this.names.filter((name) => !about.key.includes(name));
    this.order = [...about.key, ...rest];
    const pairs = this.names.length === 2 && about.key.length === 1 && about.rows > MOST_IN_TABLE;
    this.asChips = this.names.length === 1 || pairs;
    this.bars = new Set(about.columns.filter((c) => c.type === "Int64" && !about.key.includes(c.name)).map((c) => c.name));
    this.body = document.createElement(this.asChips ? "div" : "tbody");
    if (this.asChips) {
      this.body.className = "chips";
      this.place.append(this.body);
    } else {
      const table = document.createElement("table");
      const head = table.createTHead().insertRow();
      for (const column of about.columns) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = column.name;
        if (about.key.includes(column.name)) cell.classList.add("key");
        if (/^(Int64|Float64)/.test(column.type)) cell.classList.add("number");
        head.append(cell);
      }
      table.append(this.body);
      this.place.append(table);
    }
  }

  /** Set all rows. edge: the last row that is known, when there are more behind it. */
  fill(rows, hasMore) {
    this.rows.clear();
    this.elements.clear();
    this.dirty.clear();
    this.body.replaceChildren();
    for (const row of rows) {
      const { [DIFF]: count = 1, ...values } = row;
      this.rows.set(this.#id(values), { values, count });
    }
    this.edge = hasMore && rows.length ? rows.at(-1) : null;
    this.#redraw();
  }

  /** Apply changes [{row, diff}]; drawn at the next `draw`. Rows behind the edge stay unknown. */
  apply(changes) {
    for (const { row, diff } of changes) {
      if (this.edge && this.#compare(row, this.edge) > 0) continue;
      const id = this.#id(row);
      const before = this.rows.get(id)?.count ?? 0;
      if (!this.dirty.has(id)) this.dirty.set(id, before);
      if (before + diff === 0) this.rows.delete(id);
      else this.rows.set(id, { values: row, count: before + diff });
    }
  }

  filter(text) {
    this.find = text.trim().toLowerCase();
    this.#redraw();
  }

  /** Draw what changed since the last time. */
  draw() {
    if (!this.dirty.size) return;
    const changed = this.dirty;
    this.dirty = new Map();
    const gone = new Map(), fresh = [];
    // Where everything changes at once nobody can follow single rows, and fading them all would keep the browser busy:
    // then what changed is only coloured until the next drawing.
    this.lit = changed.size <= MOST_LIT;
    for (const element of this.hot) element.classList.remove("hot");
    this.hot = [];
    for (const [id, before] of changed) {
      const now = this.rows.get(id);
      if ((now?.count ?? 0) === before) continue;
      const element = this.elements.get(id);
      if (element) {
        this.elements.delete(id);
        const key = this.#keyOf(element.row);
        if (gone.has(key)) this.#leave(gone.get(key));
        gone.set(key, element);
      }
      if (now && this.#shown(now.values)) fresh.push([id, now]);
    }
    // A row that took the place of another one of the same key stays where it is; only what differs lights up.
    const added = fresh.filter(([id, now]) => {
      const key = this.#keyOf(now.values);
      const old = gone.get(key);
      if (old) gone.delete(key);
      return !old || !this.#replace(id, old, now);
    });
    for (const element of gone.values()) this.#leave(element);
    added.sort(([, a], [, b]) => this.#compare(a.values, b.values));
    this.#insert(added);
    this.#measure();
  }

  #replace(id, old, { values, count }) {
    const element = this.#element(values, count);
    if (this.asChips) this.#light(element);
    else {
      [...element.cells].forEach((cell, i) => {
        cell.classList.toggle("came", cell.textContent !== old.cells[i].textContent);
      });
    }
    const [before, after] = [old.previousElementSibling, old.nextElementSibling];
    const fits = (!before || this.#compare(before.row, values) <= 0) && (!after || this.#compare(values, after.row) <= 0);
    if (!fits) {
      old.remove();
      return false;
    }
    old.replaceWith(element);
    this.elements.set(id, element);
    return true;
  }

  #light(element) {
    element.classList.add(this.lit ? "came" : "hot");
    if (!this.lit) this.hot.push(element);
  }

  #leave(element) {
    if (!this.lit) return void element.remove();
    element.classList.remove("came");
    element.classList.add("went");
    element.dataset.gone = "1";
    element.addEventListener("animationend", () => element.remove(), { once: true });
    setTimeout(() => element.remove(), 1500);
  }

  /** Put new elements where they belong, by one walk over the present ones. */
  #insert(fresh) {
    let next = this.body.firstElementChild;
    for (const [id, { values, count }] of fresh) {
      while (next && (next.dataset.gone || this.#compare(next.row, values) < 0)) next = next.nextElementSibling;
      const element = this.#element(values, count);
      this.#light(element);
      this.elements.set(id, element);
      this.body.insertBefore(element, next);
    }
  }

  #redraw() {
    if (!this.about) return;
    const rows = [...this.rows.entries()].filter(([, { values }]) => this.#shown(values));
    rows.sort(([, a], [, b]) => this.#compare(a.values, b.values));
    this.elements.clear();
    this.dirty.clear();
    const elements = rows.map(([id, { values, count }]) => {
      const element = this.#element(values, count);
      this.elements.set(id, element);
      return element;
    });
    this.body.replaceChildren(...elements);
    if (this.asChips) {
      const longest = elements.reduce((most, element) => Math.max(most, element.textContent.length), 3);
      this.body.style.setProperty("--chip", `${longest + (this.names.length > 1 ? 5 : 2)}ch`);
    }
    this.#measure();
  }

  #element(values, count) {
    const times = count === 1 ? "" : ` ×${count}`;
    let element;
    if (this.asChips) {
      element = document.createElement("span");
      element.className = "chip";
      for (const name of this.order) {
        const part = document.createElement(this.names.length > 1 && this.about.key.includes(name) ? "b" : "span");
        part.append(text(values[name], this.about.columns[this.names.indexOf(name)].type));
        element.append(part);
      }
      element.append(times);
    } else {
      element = document.createElement("tr");
      for (const column of this.about.columns) {
        const cell = element.insertCell();
        cell.append(text(values[column.name], column.type));
        if (column.type.startsWith("TimestampNs")) cell.title = values[column.name];
        if (/^(Int64|Float64)/.test(column.type)) cell.classList.add("number");
        if (this.bars.has(column.name)) cell.classList.add("bar");
        if (this.about.key.includes(column.name)) cell.classList.add("key");
      }
      if (times) element.lastElementChild.append(times);
    }
    element.row = values;
    return element;
  }

  /** Bars behind numbers, in proportion to the greatest one. */
  #measure() {
    if (this.asChips || !this.bars.size || this.elements.size > 200) return;
    for (const name of this.bars) {
      const column = this.names.indexOf(name);
      const shown = [...this.elements.values()];
      const most = Math.max(...shown.map((element) => Number(element.row[name])));
      for (const element of shown) {
        const share = most > 0 ? Math.max(0, (Number(element.row[name]) / most) * 100) : 0;
        element.cells[column].style.setProperty("--share", `${share.toFixed(1)}%`);
      }
    }
  }

  #shown(values) {
    return !this.find || this.names.some((name) => String(values[name]).toLowerCase().includes(this.find));
  }

  #compare(a, b) {
    for (const name of this.order) {
      const order = compareValues(a[name], b[name]);
      if (order) return order;
    }
    return 0;
  }

  #keyOf(values) {
    return JSON.stringify(this.about.key.map((name) => values[name]));
  }

  #id(values) {
    return JSON.stringify(this.names.map((name) => values[name]));
  }
}

function text(value, type) {
  if (value !== null) return type.startsWith("TimestampNs") ? clockParts(BigInt(value)).join("") : String(value);
  const mark = document.createElement("span");
  mark.className = "null";
  mark.textContent = "null";
  return mark;
}

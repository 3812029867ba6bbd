// Rows as a table with bars behind its numbers.

import { el, sorter } from "./elements.js";
import { LIT_MS, shownValue, widthOf, Windowed } from "./windowed.js";

const MOST_BARS = 200;
const isNumber = (column) => /^(Int64|Float64|Decimal)/.test(column.type);

export class RowTable extends Windowed {
  constructor(scroller, about, onSort) {
    super(scroller, about);
    this.onSort = onSort;
    this.lineHeight = 27;
    this.bars = about.columns.filter((column) => /^Int64/.test(column.type) && !about.key.includes(column.name));
    this.widths = about.columns.map((column) => column.name.length + 2); // room for the arrow of the order
    this.changed = true;
    this.columns = about.columns.map(() => el("col"));
    this.above = el("tr", { class: "pad", "aria-hidden": "true" });
    this.below = el("tr", { class: "pad", "aria-hidden": "true" });
    this.body = el("tbody", {}, this.above, this.below);
    this.head = el("tr");
    this.sorted(null);
    const parts = [el("colgroup", {}, ...this.columns), el("thead", {}, this.head), this.body];
    this.table = el("table", { "aria-label": `Rows of ${about.name}` }, ...parts);
    scroller.replaceChildren(this.table);
  }

  /** Show by which column the rows are sorted; the keyboard stays where it is. */
  sorted(now) {
    const focused = [...this.head.cells].findIndex((cell) => cell.contains(document.activeElement));
    this.head.replaceChildren(
      ...this.about.columns.map((column) => {
        const own = now?.name === column.name;
        const classes = [isNumber(column) && "number", this.about.key.includes(column.name) && "key"].filter(Boolean);
        return el(
          "th",
          {
            scope: "col",
            class: classes.join(" ") || null,
            "aria-sort": own ? (now.descending ? "descending" : "ascending") : "none",
          },
          sorter(column.name, now, this.onSort),
        );
      }),
    );
    if (focused >= 0) this.head.cells[focused].firstElementChild.focus();
  }

  get first() {
    return this.above.nextElementSibling;
  }

  /** Columns are as wide as the widest value so far, the last takes the rest: scrolling never moves them to and fro. */
  fit(set) {
    this.table.setAttribute("aria-rowcount", set.shown.length + 1);
    const few = this.bars.length > 0 && set.shown.length <= MOST_BARS;
    this.most = few
      ? this.bars.map(({ name }) => Math.max(...set.shown.map((entry) => Number(entry.values[name]))))
      : [];
    if (!this.changed) return;
    this.changed = false;
    const wide = this.widths.map((width) => `calc(${width}ch + 1.4rem)`);
    this.columns.forEach((column, i) => {
      column.style.width = i < wide.length - 1 ? wide[i] : "";
    });
    this.table.style.minWidth = `calc(${this.widths.reduce((a, b) => a + b, 0)}ch + ${wide.length * 1.4}rem)`;
  }

  make({ values, count, was }) {
    const cells = this.about.columns.map((column, i) => {
      const value = values[column.name],
        shown = shownValue(value, column.type);
      if (widthOf(shown) > this.widths[i]) {
        this.widths[i] = widthOf(shown);
        this.changed = true;
      }
      const classes = [
        isNumber(column) && "number",
        this.about.key.includes(column.name) && "key",
        this.bars.includes(column) && "bar",
        was && was[column.name] !== value && "differs",
      ].filter(Boolean);
      const title = column.type.startsWith("TimestampNs") || shown.length > widthOf(shown) ? String(value) : null;
      return el(
        "td",
        { class: classes.join(" ") || null, title },
        value === null ? el("span", { class: "null" }, shown) : shown,
      );
    });
    if (count !== 1) cells.at(-1).append(` ×${count}`);
    return el("tr", { class: was ? "replaced" : null }, ...cells);
  }

  mark(element, { values, lit, gone }, { hot }, now) {
    element.classList.toggle("went", gone > 0);
    element.classList.toggle("came", !gone && !hot && lit > 0 && now - lit < LIT_MS);
    this.most.forEach((most, i) => {
      const cell = element.cells[this.about.columns.indexOf(this.bars[i])];
      const share = most > 0 ? Math.max(0, (Number(values[this.bars[i].name]) / most) * 100) : 0;
      cell.style.setProperty("--share", `${share.toFixed(1)}%`);
    });
  }

  place(element, i) {
    element.setAttribute("aria-rowindex", i + 2);
  }

  pad(above, below) {
    this.above.style.height = `${above * this.lineHeight}px`;
    this.below.style.height = `${below * this.lineHeight}px`;
  }
}

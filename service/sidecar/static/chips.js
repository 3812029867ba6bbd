// Rows of one or two short columns, as chips side by side.

import { el, sorter } from "./elements.js";
import { FADE_MS } from "./rowset.js";
import { LIT_MS, shownValue, widthOf, Windowed } from "./windowed.js";

const SAMPLE = 300;
const CHARACTER = 7.75; // px, a little more than the monospaced face needs

export class Chips extends Windowed {
  constructor(scroller, about, onSort) {
    super(scroller, about);
    this.onSort = onSort;
    const rest = about.columns.map((column) => column.name).filter((name) => !about.key.includes(name));
    this.names = [...about.key, ...rest];
    this.types = this.names.map((name) => about.columns.find((column) => column.name === name).type);
    this.lineHeight = 28;
    this.longest = 3;
    this.known = 0;
    this.body = el("div", { class: "chips", role: "list", "aria-label": `Rows of ${about.name}` });
    this.head = el("div", { class: "chips-head", role: "group", "aria-label": "Each box has these columns" });
    this.sorted(null);
    scroller.replaceChildren(this.head, this.body);
  }

  /** The names of the columns that a chip has, and by which of them the chips are sorted. */
  sorted(now) {
    const focused = [...this.head.children].indexOf(document.activeElement);
    this.head.replaceChildren(...this.names.map((name) => sorter(name, now, this.onSort)));
    for (const button of this.head.children)
      button.setAttribute("aria-pressed", String(now?.name === button.textContent));
    if (focused >= 0) this.head.children[focused].focus();
  }

  get first() {
    return this.body.firstElementChild;
  }

  /**
   * How many chips fit a line: by the longest of a sample, looked at again as rows come, so that a longer one makes
   * room for itself.
   */
  fit(set) {
    if (this.known !== set.all.length) {
      this.known = set.all.length;
      for (let i = 0; i < this.known; i += Math.ceil(this.known / SAMPLE)) this.#measure(set.all[i]);
      if (this.known) this.#measure(set.all.at(-1));
    }
    const wide = (this.longest + (this.names.length > 1 ? 5 : 2)) * CHARACTER;
    const perLine = Math.max(1, Math.floor((this.body.clientWidth + 4) / (wide + 4)));
    if (perLine === this.perLine) return;
    this.perLine = perLine;
    this.body.style.setProperty("--per-line", perLine);
  }

  #measure(entry) {
    const times = entry.count === 1 ? 0 : ` ×${entry.count}`.length;
    const spelled = this.names.map((name, i) => shownValue(entry.values[name], this.types[i]).length);
    const length = spelled.reduce((sum, wide) => sum + wide, times);
    this.longest = Math.max(this.longest, widthOf({ length }));
  }

  make(entry) {
    this.#measure(entry);
    const { values, count } = entry;
    const parts = this.names.map((name, i) => {
      const isKey = this.names.length > 1 && this.about.key.includes(name);
      return el(
        isKey ? "b" : "span",
        { class: values[name] === null && "null" },
        shownValue(values[name], this.types[i]),
      );
    });
    return el("span", { class: "chip", role: "listitem" }, ...parts, count === 1 ? null : ` ×${count}`);
  }

  mark(element, { lit, gone }, { hot }, now) {
    element.classList.toggle("went", gone > 0);
    element.classList.toggle("came", !hot && !gone && lit > 0 && now - lit < LIT_MS);
    element.classList.toggle("hot", hot && lit > 0 && now - lit < FADE_MS);
  }

  pad(above, below) {
    this.body.style.paddingTop = `${above * this.lineHeight}px`;
    this.body.style.paddingBottom = `${below * this.lineHeight}px`;
  }
}

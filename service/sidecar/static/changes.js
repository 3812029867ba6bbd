// The log of the newest changes. It does not move while the pointer is on it; each line leads to the rows as of its
// time.

import { at, el, say } from "./elements.js";
import { grouped } from "./figures.js";
import { clockParts } from "./time.js";

const MOST = 80;
const EVERY_MS = 300;
const RATE_MS = 5000;

export class Changes {
  constructor(session) {
    this.session = session;
    this.list = at("changes");
    session.addEventListener("chosen", () => this.#clear());
    session.addEventListener("changes", (event) => this.#add(event.detail));
    this.list.addEventListener("click", (event) => this.#choose(event.target.closest("li")));
    this.list.addEventListener("keydown", (event) => this.#key(event));
    this.#clear();
  }

  #clear() {
    this.newest = [];
    this.recent = [];
    this.drawn = 0;
    this.fresh = true;
    this.list.replaceChildren();
    this.list.removeAttribute("aria-activedescendant");
  }

  #add(changes) {
    this.newest.push(...changes.slice(-MOST));
    this.newest.splice(0, Math.max(0, this.newest.length - MOST));
    this.recent.push([performance.now(), changes.length]);
    this.fresh = true;
  }

  /** Draw what is new, unless the user is reading. */
  draw(now) {
    if (now - this.drawn < EVERY_MS) return;
    this.drawn = now;
    this.recent = this.recent.filter(([when]) => now - when < RATE_MS);
    const count = this.recent.reduce((sum, [, changes]) => sum + changes, 0);
    say(at("rate"), grouped(Math.round((count * 1000) / RATE_MS)));
    const paused =
      this.list.childElementCount > 0 && (!this.session.live || this.list.matches(":hover, :focus-visible"));
    at("paused").hidden = !paused;
    if (!this.fresh || paused) return;
    this.fresh = false;
    this.list.replaceChildren(...this.#paired().map((change, i) => this.#line(change, i)).reverse());
    this.list.removeAttribute("aria-activedescendant");
  }

  /** The newest changes; a row that goes and one of its key that comes at the same time are one: old → new. */
  #paired() {
    const key = this.session.view?.key ?? [],
      lines = [],
      open = new Map();
    for (const change of this.newest) {
      const place = JSON.stringify([change.time, ...key.map((name) => change.row[name])]);
      const other = open.get(place);
      if (other && Math.abs(change.diff) === 1 && other.diff === -change.diff) {
        const [old, now] = change.diff > 0 ? [other, change] : [change, other];
        lines[lines.indexOf(other)] = { ...now, old: old.row };
        open.delete(place);
        continue;
      }
      open.set(place, change);
      lines.push(change);
    }
    return lines;
  }

  #line({ row, time, diff, old }, i) {
    const spelled = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
    const names = Object.entries(row)
      .map(([name, value]) => `${name} ${JSON.stringify(value)}`)
      .join(", ");
    const differs = ([name, value]) => old && spelled(old[name]) !== spelled(value);
    const line = el(
      "li",
      { id: `change-${i}`, role: "option", "aria-selected": "false", title: `${names} at ${time}` },
      el("span", { class: "at" }, clockParts(BigInt(time)).join("")),
      el(
        "span",
        { class: `sign ${old ? "" : diff > 0 ? "plus" : "minus"}` },
        old ? "→" : diff > 0 ? `+${diff}` : `−${-diff}`,
      ),
      el(
        "span",
        { class: "what" },
        ...Object.entries(row).flatMap(([name, value], j, all) => [
          j ? "  " : null,
          all.length > 1 ? el("span", { class: "muted" }, `${name} `) : null,
          differs([name, value]) ? `${spelled(old[name])} → ${spelled(value)}` : spelled(value),
        ]),
      ),
    );
    line.time = BigInt(time);
    return line;
  }

  #choose(line) {
    if (!line) return;
    for (const other of this.list.children) other.setAttribute("aria-selected", String(other === line));
    this.list.setAttribute("aria-activedescendant", line.id);
    line.scrollIntoView({ block: "nearest" });
    this.session.lookBack(line.time);
  }

  #key(event) {
    const lines = [...this.list.children],
      now = lines.findIndex((line) => line.getAttribute("aria-selected") === "true");
    const next = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(lines[Math.max(0, Math.min(lines.length - 1, next))]);
  }
}

// A question in SQL over all views, at the time that the console shows.

import { send } from "./api.js";
import { at, el, headings, say } from "./elements.js";
import { counted, grouped } from "./figures.js";
import { clockParts } from "./time.js";
import { shownValue } from "./windowed.js";

const DEADLINE_MS = 120_000; // the sidecar ends a question that takes too long before that
const MOST_ROWS = 500;
const NUMBER = /^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DOUBLE|FLOAT|DECIMAL)/; // types are DuckDB's
const shown = (value, type) => shownValue(value, /^TIMESTAMP/.test(type) ? "TimestampNs" : type);

export class Questions {
  constructor(session) {
    this.session = session;
    this.text = at("question");
    this.button = at("question-run");
    at("question-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.ask();
    });
    session.addEventListener("chosen", () => {
      this.text.placeholder = `SELECT count(*) FROM "${session.view.name}"`;
    });
  }

  /** Ask what is typed, or what the empty box proposes. One question at a time. */
  async ask() {
    if (this.button.disabled) return;
    if (!this.text.value.trim()) this.text.value = this.text.placeholder;
    this.button.disabled = true;
    say(at("question-note"), "running …");
    const { asOf } = this.session;
    const body = { sql: this.text.value, ...(asOf === null ? {} : { as_of: String(asOf) }) };
    try {
      this.#show(await send("/v1/sql", body, DEADLINE_MS));
    } catch (problem) {
      at("question-table").hidden = true;
      at("question-note").classList.add("wrong");
      say(at("question-note"), problem.name === "TimeoutError" ? "the sidecar has not answered" : problem.message);
    } finally {
      this.button.disabled = false;
    }
  }

  #show({ as_of, columns, rows }) {
    const cell = (value, type) =>
      el(
        "td",
        { class: NUMBER.test(type) && "number" },
        value === null ? el("span", { class: "null" }, shown(value, type)) : shown(value, type),
      );
    const line = (row) => el("tr", {}, ...columns.map(({ name, type }) => cell(row[name], type)));
    at("question-rows").replaceChildren(
      el("thead", {}, headings(columns.map(({ name, type }) => [name, NUMBER.test(type)]))),
      el("tbody", {}, ...rows.slice(0, MOST_ROWS).map(line)),
    );
    at("question-table").hidden = false;
    at("question-note").classList.remove("wrong");
    const first = rows.length > MOST_ROWS ? `; the first ${grouped(MOST_ROWS)} are shown` : "";
    say(at("question-note"), `${counted(rows.length, "row")} as of ${clockParts(BigInt(as_of)).join("")}${first}`);
  }
}

// Dead letters: what ingestion refused, why, and what to do about it.

import { at, el, headings, prose, say } from "./elements.js";
import { bytes, counted, grouped } from "./figures.js";
import { clockParts } from "./time.js";

const COLUMNS = [
  ["epoch", true],
  ["reason", false],
  ["came from", false],
  ["why", false],
  ["value", false],
];
const PREVIEW = 90;

/** The beginning of a value as text; bytes that are no text as dots. */
function preview(base64) {
  if (base64 === null || base64 === undefined) return "null";
  const raw = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const text = new TextDecoder().decode(raw.slice(0, PREVIEW)).replace(/[\p{C}\ufffd]/gu, "·");
  return raw.length > PREVIEW ? `${text}…` : text;
}

export class Letters {
  constructor() {
    this.body = el("tbody");
    at("letters").replaceChildren(el("thead", {}, headings(COLUMNS)), this.body);
    this.shown = null;
  }

  show({ dead_letters: letters, totals }) {
    const total = totals.reduce((sum, one) => sum + one.value, 0);
    say(at("letter-count"), total ? grouped(total) : "none");
    const version = JSON.stringify([totals, letters[0]]);
    if (version === this.shown) return;
    this.shown = version;
    at("letter-totals").replaceChildren(
      ...totals.map(({ source, reason, value }) =>
        el("span", { class: "pill" }, `${source}: ${grouped(value)} ${reason}`),
      ),
    );
    at("letter-table").hidden = !letters.length;
    this.body.replaceChildren(...letters.map((letter) => this.#line(letter)));
    const sources = [...new Set(letters.map((letter) => letter.source ?? letter.topic))];
    at("letter-help").replaceChildren(
      ...prose(
        total === 0
          ? "Every message that came could be used."
          : letters.length
            ? `The newest ${counted(letters.length, "letter")}. Nothing is lost: see them whole with ` +
              `\`vernier dlq list ${sources[0]}\`, correct what is wrong, then \`vernier dlq replay ${sources[0]}\`.`
            : "They were refused before this sidecar started: see them with `vernier dlq list`.",
      ),
    );
  }

  #line(letter) {
    const shown = preview(letter.value),
      size = letter.bytes === undefined ? "" : bytes(letter.bytes);
    const frontier = letter.frontier === undefined ? "" : `frontier ${clockParts(BigInt(letter.frontier)).join("")}`;
    return el(
      "tr",
      {},
      el("td", { class: "number" }, grouped(letter.epoch)),
      el("td", {}, el("span", { class: "pill down" }, letter.reason.replaceAll("_", " "))),
      el("td", { title: frontier }, `${letter.topic}:${letter.partition}@${letter.offset}`),
      el("td", { class: "wrap", title: letter.detail }, letter.detail),
      el("td", { class: "wrap value", title: size }, shown),
    );
  }
}

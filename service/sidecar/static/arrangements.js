// Arrangements: what is kept, in which batches, and which operators share it.

import { at, el, headings, say, svg } from "./elements.js";
import { bytes, counted, grouped } from "./figures.js";
import { clockParts } from "./time.js";

const COLUMNS = [
  ["arrangement", false],
  ["read by", false],
  ["batches of each worker, newest last", false],
  ["updates", true],
  ["size", true],
  ["history from", false],
];
const MOST_OPEN = 12;
const LARGEST = 8; // what stays open where there are more
const WIDE = 230;
const TALL = 11;

/**
 * A line for each shard, a block for each batch, as wide as the batch is long on a log scale: 1, then about 4 px for
 * each doubling.
 */
function batches(shards) {
  const heights = shards.length * (TALL + 3);
  const wide = (updates) => 3 + 3.2 * Math.log2(1 + updates);
  const longest = Math.max(1, ...shards.map((shard) => shard.reduce((sum, batch) => sum + wide(batch.updates) + 2, 0)));
  const scale = Math.min(1, WIDE / longest);
  const blocks = shards.flatMap((shard, row) => {
    let x = 0;
    return shard.map((batch) => {
      const width = Math.max(2, wide(batch.updates) * scale);
      const [from, to] = [batch.lower, batch.upper].map((time) => clockParts(BigInt(time))[0]);
      const label = `worker ${row}: ${counted(batch.updates, "update")}, ${bytes(batch.bytes)}, from ${from} to ${to}`;
      const block = svg(
        "rect",
        { class: "batch", x, y: row * (TALL + 3), width, height: TALL, rx: 2 },
        svg("title", {}, label),
      );
      x += width + 2 * scale;
      return block;
    });
  });
  const total = shards.map((shard) => shard.length).join(" and ");
  return svg(
    "svg",
    {
      class: "batches",
      width: WIDE,
      height: heights,
      viewBox: `0 0 ${WIDE} ${heights}`,
      role: "img",
      "aria-label": `${total} batches`,
    },
    ...blocks,
  );
}

function since(shards) {
  const all = shards.flat().map((batch) => BigInt(batch.since));
  return all.length ? all.reduce((a, b) => (a > b ? a : b)) : null;
}

export class Arrangements {
  /** told: is called with each answer, so that the graph can show what an operator keeps. */
  constructor(told) {
    this.told = told;
    this.names = new Map();
    [this.body, this.rest] = ["arrangements", "more-arrangements"].map((id) => {
      const body = el("tbody");
      at(id).replaceChildren(el("thead", {}, headings(COLUMNS)), body);
      return body;
    });
  }

  /** What the plan calls its operators, by number. */
  name(operators) {
    this.names = new Map(
      operators.map((one) => [
        one.id,
        one.kind === "leave"
          ? `result of ${one.name}`
          : one.kind === "variable"
            ? `next round of ${one.name}`
            : one.name,
      ]),
    );
  }

  show({ traces }) {
    this.told(traces);
    const sorted = [...traces].sort((a, b) => b.bytes - a.bytes),
      shared = traces.filter((trace) => (trace.readers?.length ?? 0) > 1).length;
    const total = traces.reduce((sum, trace) => sum + trace.bytes, 0),
      updates = traces.reduce((sum, trace) => sum + trace.updates, 0);
    say(
      at("arrangement-total"),
      `${counted(traces.length, "arrangement")}, ${shared} shared, ${counted(updates, "update")}, ${bytes(total)}`,
    );
    const open = sorted.length > MOST_OPEN ? LARGEST : sorted.length,
      folded = sorted.slice(open);
    this.body.replaceChildren(...sorted.slice(0, open).map((trace) => this.#line(trace)));
    this.rest.replaceChildren(...folded.map((trace) => this.#line(trace)));
    at("folded").hidden = !folded.length;
    const smaller = folded.reduce((sum, trace) => sum + trace.bytes, 0);
    say(at("folded-title"), `${counted(folded.length, "smaller arrangement")}, ${bytes(smaller)}`);
  }

  #line(trace) {
    const readers = trace.readers ?? [],
      from = since(trace.shards);
    const names = readers.map((id) => this.names.get(id) ?? `#${id}`);
    const badge = readers.length > 1 ? el("span", { class: "pill live" }, `shared ×${readers.length}`) : null;
    return el(
      "tr",
      {},
      el(
        "td",
        { class: "name", title: trace.trace },
        trace.label ?? trace.trace,
        trace.depth
          ? el("span", { class: "muted" }, ` in ${trace.depth > 1 ? `${trace.depth} loops` : "a loop"}`)
          : null,
      ),
      el(
        "td",
        { class: "wrap" },
        badge,
        badge ? " " : "",
        names.join(", ") || "–",
        el("br"),
        el("span", { class: "muted" }, trace.views?.length ? `for ${trace.views.join(", ")}` : ""),
      ),
      el("td", {}, batches(trace.shards)),
      el("td", { class: "number" }, grouped(trace.updates)),
      el("td", { class: "number" }, bytes(trace.bytes)),
      el("td", {}, from === null ? "–" : clockParts(from)[0]),
    );
  }
}

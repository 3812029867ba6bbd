// The dataflow panel: the graph, the operators that take the most time, the rounds of loops, and one operator in full.

import { at, el, say, svg } from "./elements.js";
import { bytes, counted, duration, grouped, percent, short } from "./figures.js";
import { Flows } from "./flows.js";
import { DataflowGraph } from "./graph.js";
import { graphOf } from "./plan.js";

const HOTTEST = 7;
const KINDS = {
  input: "source",
  variable: "loop variable",
  arrange: "arrangement: kept, sorted by key",
  reduce: "reduction",
  join: "join",
  linear: "row by row",
  union: "union",
  view: "view",
  lookup: "look-up",
  hold: "keeps what lies ahead",
  consolidate: "sums equal changes",
};

export class Dataflow {
  /** planned: is called with the plan's operators when the plan changes. */
  constructor(planned) {
    this.planned = planned;
    this.flows = new Flows();
    this.graph = new DataflowGraph(at("graph"), () => this.#describe());
    this.plan = null;
    this.traces = [];
    at("zoom-out").addEventListener("click", () => this.graph.scale(this.graph.zoom / 1.2));
    at("zoom-in").addEventListener("click", () => this.graph.scale(this.graph.zoom * 1.2));
    at("zoom-fit").addEventListener("click", () => this.graph.fit());
    at("hot").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.graph.select(Number(button.dataset.id));
    });
    // Dots run along the lines only while they are visible.
    new IntersectionObserver(([entry]) => at("graph").classList.toggle("running", entry.isIntersecting)).observe(
      at("graph"),
    );
  }

  show(answer) {
    const version = JSON.stringify(answer.plan.operators);
    if (version !== this.version) {
      this.version = version;
      this.drawn = graphOf(answer.plan);
      this.flows = new Flows();
      this.graph.selected = null;
      this.graph.draw(this.drawn);
      this.planned(answer.plan.operators);
      this.operators = answer.plan.operators;
    }
    this.flows.add(answer, performance.now());
    this.graph.update(this.flows);
    this.#rank();
    this.#loops();
    this.#describe();
    say(
      at("dataflow-note"),
      `${counted(this.drawn.nodes.length, "operator")}, ${counted(this.drawn.loops.length, "loop")}`,
    );
  }

  /** There is no plan to show: in the words of the sidecar. */
  refuse(problem) {
    say(at("dataflow-note"), `${problem.message}.`);
  }

  keep(traces) {
    this.traces = traces;
    if (this.drawn) this.#describe();
  }

  #rank() {
    const ranked = this.drawn.nodes
      .map((node) => ({ node, share: this.flows.share(node.covers) }))
      .sort((a, b) => b.share - a.share)
      .slice(0, HOTTEST);
    const loops = new Map(this.drawn.loops.map(({ id, name }) => [id, name]));
    const focused = document.activeElement?.closest("#hot button")?.dataset.id;
    at("hot").replaceChildren(
      ...ranked.map(({ node, share }) => {
        const bar = el("span", { class: "bar" });
        bar.style.setProperty("--share", `${(share * 100).toFixed(1)}%`);
        const took = duration(this.flows.perEpoch(node.covers));
        return el(
          "li",
          {},
          el(
            "button",
            { type: "button", "data-id": node.id, title: `${node.kind} ${node.full}` },
            el(
              "span",
              { class: "name" },
              node.full,
              loops.has(node.parent) ? el("span", { class: "muted" }, ` in ${loops.get(node.parent)}`) : null,
            ),
            el("span", { class: "share" }, percent(share)),
            el("span", { class: "took" }, took),
            bar,
          ),
        );
      }),
    );
    if (focused) at("hot").querySelector(`[data-id="${focused}"]`)?.focus();
  }

  #loops() {
    const lines = this.drawn.loops.map(({ name, maxRounds }) => {
      const seen = this.flows.rounds.get(name) ?? [],
        most = Math.max(1, ...seen);
      const wide = 110,
        tall = 20,
        step = wide / Math.max(1, seen.length - 1);
      const d = seen
        .map(
          (rounds, i) =>
            `${i ? "L" : "M"}${(i * step).toFixed(1)} ${(tall - 1 - (rounds / most) * (tall - 3)).toFixed(1)}`,
        )
        .join("");
      return el(
        "li",
        {},
        el("span", { class: "name" }, name),
        el("b", { class: "rounds" }, seen.length ? grouped(seen.at(-1)) : "–"),
        svg(
          "svg",
          { class: "spark", viewBox: `0 0 ${wide} ${tall}`, "aria-hidden": "true" },
          svg("path", { class: "line p50", d }),
        ),
        el("span", { class: "muted" }, `rounds in the newest epoch, of ${grouped(maxRounds)} allowed`),
      );
    });
    at("loops").replaceChildren(...lines);
    at("loops-title").hidden = !lines.length;
  }

  #describe() {
    const node = this.drawn?.nodes.find((one) => one.id === this.graph.selected);
    at("operator").hidden = !node;
    at("operator-none").hidden = Boolean(node);
    if (!node) return;
    say(at("operator-name"), node.full);
    const { op, covers, id } = node,
      rate = this.flows.rate(id);
    const facts = [
      ["kind", KINDS[op.kind] ?? op.kind],
      ["gives", `${rate === null ? "–" : short(rate)} rows a second, ${grouped(this.flows.total(id))} in all`],
      [
        "takes",
        `${duration(this.flows.perEpoch(covers))} an epoch and worker, ${percent(this.flows.share(covers))} of all`,
      ],
      ["time", op.time === "total" ? "data time alone" : "data time and rounds of its loops"],
      ["steps", op.fused > 1 ? `${op.fused} fused into one pass` : null],
      ["moves rows", op.exchange ? "to the worker of their key" : null],
      ["keeps", this.#kept(covers)],
    ];
    at("operator-facts").replaceChildren(
      ...facts
        .filter(([, value]) => value)
        .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    );
  }

  /** What the arrangement of an operator holds now. */
  #kept(covers) {
    const names = this.operators.filter((op) => covers.includes(op.id) && op.trace).map((op) => op.trace);
    const traces = this.traces.filter((trace) => names.includes(trace.trace));
    const updates = traces.reduce((sum, trace) => sum + trace.updates, 0),
      size = traces.reduce((sum, trace) => sum + trace.bytes, 0);
    return traces.length ? `${grouped(updates)} updates, ${bytes(size)}` : null;
  }
}

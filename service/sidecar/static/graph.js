// Drawing the dataflow graph: dagre finds the places, loops are boxes, lines are as thick as rows flow along them.

import { layout, Graph } from "./vendor/dagre/dagre.esm.js";
import { svg } from "./elements.js";
import { percent, short } from "./figures.js";

const TALL = 44;
const CHARACTER = 7.1; // px of the titles' face, about
const KEEPS = new Set(["arrange", "reduce", "view"]);

function place({ nodes, edges, loops }) {
  const graph = new Graph({ compound: true, multigraph: true });
  graph.setGraph({ rankdir: "TB", ranksep: 34, nodesep: 24, edgesep: 14, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const loop of loops) graph.setNode(`loop${loop.id}`, {});
  for (const node of nodes)
    graph.setNode(`op${node.id}`, { width: Math.max(118, node.title.length * CHARACTER + 26), height: TALL });
  for (const { id, parent } of loops) if (parent !== null) graph.setParent(`loop${id}`, `loop${parent}`);
  for (const { id, parent } of nodes) if (parent !== null) graph.setParent(`op${id}`, `loop${parent}`);
  // What goes back into a loop is laid out as if it came from there, so that the loop's head stays on top.
  edges.forEach(({ from, to, back }, i) =>
    graph.setEdge(`op${back ? to : from}`, `op${back ? from : to}`, {}, String(i)),
  );
  layout(graph);
  return graph;
}

/** A smooth line through dagre's points. */
function curve(points) {
  if (points.length < 3) return points.map(({ x, y }, i) => `${i ? "L" : "M"}${x} ${y}`).join("");
  let path = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length - 1; i += 1) {
    const here = points[i],
      next = points[i + 1],
      last = i === points.length - 2;
    const x = last ? next.x : (here.x + next.x) / 2,
      y = last ? next.y : (here.y + next.y) / 2;
    path += `Q${here.x} ${here.y} ${x} ${y}`;
  }
  return path;
}

export class DataflowGraph {
  /** place: an <svg>; chosen: is called with the id of a node that the user chooses. */
  constructor(element, chosen) {
    this.element = element;
    this.chosen = chosen;
    this.selected = null;
    this.nodes = new Map();
    this.zoom = 1;
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (node) this.select(Number(node.dataset.id));
    });
  }

  /** Draw another plan: what `graphOf` gives. */
  draw(drawn) {
    const graph = place(drawn);
    const { width, height } = graph.graph();
    this.width = width;
    this.height = height;
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.loops = new Map(drawn.loops.map((loop) => [loop.name, this.#loop(loop, graph.node(`loop${loop.id}`))]));
    this.edges = drawn.edges.map((edge, i) => this.#edge(edge, graph, String(i)));
    this.nodes = new Map(drawn.nodes.map((node) => [node.id, this.#node(node, graph.node(`op${node.id}`))]));
    this.element.replaceChildren(
      svg(
        "defs",
        {},
        svg(
          "marker",
          {
            id: "tip",
            viewBox: "0 0 8 8",
            refX: 7,
            refY: 4,
            markerWidth: 7,
            markerHeight: 7,
            markerUnits: "userSpaceOnUse",
            orient: "auto",
          },
          svg("path", { class: "tip", d: "M0 0L8 4L0 8Z" }),
        ),
      ),
      ...[...this.loops.values()].map((loop) => loop.group),
      ...this.edges.flatMap((edge) => [edge.line, edge.pulse]),
      ...[...this.nodes.values()].map((node) => node.group),
    );
    const first = this.nodes.get(this.selected) ?? this.nodes.values().next().value;
    first?.group.setAttribute("tabindex", "0");
    this.fit();
  }

  #loop(loop, { x, y, width, height }) {
    const label = svg("text", { class: "loop-name", x: x - width / 2 + 9, y: y - height / 2 - 6 }, `loop ${loop.name}`);
    const box = svg("rect", { class: "loop", x: x - width / 2, y: y - height / 2, width, height, rx: 10 });
    return { group: svg("g", {}, box, label), label, loop };
  }

  #edge({ from, to, by, back }, graph, name) {
    const points = back
      ? [...graph.edge(`op${to}`, `op${from}`, name).points].reverse()
      : graph.edge(`op${from}`, `op${to}`, name).points;
    const d = curve(points);
    const line = svg("path", { class: `flow${back ? " back" : ""}`, d, "marker-end": "url(#tip)" });
    return { by, line, pulse: svg("path", { class: "pulse", d }) };
  }

  #node(node, { x, y, width }) {
    const keeps = KEEPS.has(node.kind);
    const left = x - width / 2,
      top = y - TALL / 2,
      round = node.kind === "input" || node.kind === "variable" ? TALL / 2 : 7;
    const below = svg("text", { class: "doing", x, y: y + 13, "text-anchor": "middle" });
    const heat = svg("rect", { class: "heat", x: left + 1, y: top + TALL - 4, width: 0, height: 3, rx: 1.5 });
    const group = svg(
      "g",
      { class: `node ${node.kind}`, "data-id": node.id, tabindex: "-1", role: "button", "aria-pressed": "false" },
      keeps ? svg("rect", { class: "kept", x: left + 4, y: top + 4, width, height: TALL, rx: round }) : null,
      svg("rect", { class: "body", x: left, y: top, width, height: TALL, rx: round }),
      heat,
      svg("text", { class: "title", x, y: y - 4, "text-anchor": "middle" }, node.title),
      " ",
      below,
    );
    return { group, below, heat, node, x, y, room: width - 2 };
  }

  /** Show what flows now. */
  update(flows) {
    for (const { by, line, pulse } of this.edges) {
      const rate = flows.rate(by) ?? 0;
      line.style.setProperty("--flow", (1 + Math.min(4, Math.log10(1 + rate) * 0.8)).toFixed(1));
      pulse.classList.toggle("moving", rate > 0);
    }
    for (const { group, below, heat, node, room } of this.nodes.values()) {
      const rate = flows.rate(node.id),
        share = flows.share(node.covers);
      const does = rate === null ? `${short(flows.total(node.id))} rows` : `${short(rate)}/s`;
      below.textContent = share >= 0.01 ? `${does} · ${percent(share)}` : does;
      heat.setAttribute("width", (room * Math.min(1, share)).toFixed(1));
      group.style.setProperty("--heat", `${Math.min(100, share * 160).toFixed(0)}%`);
      const words = `${node.title} ${below.textContent}: ${node.kind}${node.title === node.full ? "" : ` ${node.full}`}`;
      group.setAttribute("aria-label", words);
    }
    for (const [name, { label }] of this.loops) {
      const rounds = flows.rounds.get(name)?.at(-1);
      label.textContent = rounds === undefined ? `loop ${name}` : `loop ${name} · ${rounds} rounds`;
    }
  }

  /** Choose a node; the panel beside it shows details. */
  select(id) {
    this.nodes.get(this.selected)?.group.setAttribute("aria-pressed", "false");
    for (const { group } of this.nodes.values()) group.setAttribute("tabindex", "-1");
    this.selected = id;
    const { group } = this.nodes.get(id);
    group.setAttribute("aria-pressed", "true");
    group.setAttribute("tabindex", "0");
    this.chosen(id);
  }

  /** As wide as its place, but never too small to read, nor larger than its natural size. */
  fit() {
    const room = this.element.parentElement.clientWidth - 4;
    this.scale(Math.max(0.72, Math.min(1, room / this.width)));
  }

  scale(zoom) {
    this.zoom = Math.max(0.3, Math.min(2.5, zoom));
    this.element.setAttribute("width", Math.round(this.width * this.zoom));
    this.element.setAttribute("height", Math.round(this.height * this.zoom));
  }

  #key(event) {
    const from = this.nodes.get(Number(event.target.closest(".node")?.dataset.id));
    const step = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[event.key];
    if (event.key === "+") this.scale(this.zoom * 1.2);
    else if (event.key === "-") this.scale(this.zoom / 1.2);
    else if (event.key === "0") this.fit();
    else if (from && (event.key === "Enter" || event.key === " ")) this.select(from.node.id);
    else if (from && step) this.#go(from, step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** To the nearest node in a direction; what is aside counts double. */
  #go(from, [dx, dy]) {
    let best = null,
      least = Infinity;
    for (const node of this.nodes.values()) {
      const along = (node.x - from.x) * dx + (node.y - from.y) * dy;
      const aside = Math.abs((node.x - from.x) * dy) + Math.abs((node.y - from.y) * dx);
      if (along > 4 && along + 2 * aside < least) [best, least] = [node, along + 2 * aside];
    }
    if (!best) return;
    this.select(best.node.id);
    best.group.focus();
    best.group.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

// The latency charts, drawn as SVG.

import { svg } from "./elements.js";
import { duration, grouped } from "./figures.js";

const BELOW = 18;

function canvas(place) {
  const width = place.clientWidth || 400,
    height = place.clientHeight || 150;
  place.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { width, height, base: height - BELOW };
}

function nothing(place, text) {
  const { width, height } = canvas(place);
  place.replaceChildren(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, text));
}

const ends = (list, wanted) => [list.findIndex(wanted), list.findLastIndex(wanted)];

/** Bars by bucket, log scale of latency, with lines at p50 and p99. bounds: upper ends of the buckets in seconds. */
export function histogram(place, bounds, about) {
  if (!about?.count) return nothing(place, "no updates yet");
  const { width, height, base } = canvas(place),
    counts = about.histogram,
    parts = [];
  const [lowest, highest] = ends(counts, (count) => count > 0);
  const first = Math.max(0, lowest - 2),
    last = Math.min(bounds.length - 1, highest + 2);
  const most = Math.max(...counts),
    step = width / (last - first + 1);
  for (let i = first; i <= last; i += 1) {
    const x = (i - first) * step;
    if (counts[i]) {
      const tall = Math.max(1.5, (counts[i] / most) * (base - 34));
      const label = `up to ${duration(bounds[i])}: ${grouped(counts[i])} updates`;
      parts.push(
        svg(
          "rect",
          { class: "bucket", x: x + 1, y: base - tall, width: Math.max(1, step - 2), height: tall, rx: 2 },
          svg("title", {}, label),
        ),
      );
    }
    if ((i - first) % Math.ceil(56 / step) === 0 && x + step < width - 20) {
      parts.push(svg("text", { x: x + step, y: height - 4, "text-anchor": "middle" }, duration(bounds[i])));
    }
  }
  parts.push(svg("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }));
  const locate = (seconds) => {
    const i = bounds.findIndex((bound) => bound >= seconds),
      low = i > 0 ? bounds[i - 1] : 0;
    return (i - first + (seconds - low) / (bounds[i] - low)) * step;
  };
  [
    ["p50", about.quantiles["0.5"]],
    ["p99", about.quantiles["0.99"]],
  ].forEach(([name, seconds], row) => {
    if (seconds === null || seconds > bounds[last]) return;
    const x = locate(seconds),
      left = x > width - 90,
      y = 10 + row * 13;
    parts.push(svg("line", { class: `mark ${name}`, x1: x, x2: x, y1: y - 8, y2: base }));
    parts.push(
      svg(
        "text",
        { class: name, x: left ? x - 4 : x + 4, y, "text-anchor": left ? "end" : "start" },
        `${name} ${duration(seconds)}`,
      ),
    );
  });
  place.replaceChildren(...parts);
  place.setAttribute(
    "aria-label",
    `Latency histogram of ${grouped(about.count)} updates: half of them within ` +
      `${duration(about.quantiles["0.5"])}, 99% within ${duration(about.quantiles["0.99"])}`,
  );
}

/** The next greater round number of seconds: 1, 2 or 5 times a power of ten. */
function roundUp(seconds) {
  const power = 10 ** Math.floor(Math.log10(seconds));
  return power * [1, 2, 5, 10].find((times) => times * power >= seconds * 0.999);
}

const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** Percentiles over time, and a cursor at one of the points. */
export class Series {
  constructor(place, told) {
    this.place = place;
    this.told = told;
    this.points = [];
    this.cursor = null;
    place.addEventListener("pointermove", (event) => this.#point(event.clientX - place.getBoundingClientRect().left));
    place.addEventListener("pointerleave", () => this.#choose(null));
    place.addEventListener("blur", () => this.#choose(null));
    place.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show points {at (ns), p50, p99, count}, oldest first, of the last `seconds`. */
  show(points, seconds) {
    this.points = points ?? [];
    this.seconds = seconds;
    this.#draw();
  }

  #draw() {
    const { points, place } = this;
    if (points.length < 2) {
      nothing(place, "a line needs two points: wait a moment");
      return this.told("");
    }
    const { width, height, base } = canvas(place),
      left = 50,
      right = width - 30;
    this.ms = points.map((point) => Number(BigInt(point.at) / 1_000_000n));
    const end = this.ms.at(-1),
      begin = Math.max(end - this.seconds * 1000, this.ms[0]);
    const top = roundUp(Math.max(1e-6, ...points.map((point) => point.p99)));
    this.x = this.ms.map((ms) => left + ((ms - begin) / Math.max(1, end - begin)) * (right - left));
    const y = (value) => base - (value / top) * (base - 8);
    const parts = [0, 0.5, 1].flatMap((share) => [
      svg("line", { class: "axis", x1: left, x2: right, y1: y(top * share), y2: y(top * share) }),
      svg("text", { x: left - 6, y: y(top * share) + 4, "text-anchor": "end" }, share ? duration(top * share) : "0"),
    ]);
    const heights = { p99: y(points.at(-1).p99), p50: y(points.at(-1).p50) };
    const gap = heights.p50 - heights.p99; // names that would cover each other are moved apart
    if (gap < 13) {
      heights.p99 -= (13 - gap) / 2;
      heights.p50 += (13 - gap) / 2;
    }
    for (const name of ["p99", "p50"]) {
      const line = points
        .map((point, i) => `${i ? "L" : "M"}${this.x[i].toFixed(1)} ${y(point[name]).toFixed(1)}`)
        .join("");
      if (name === "p99") {
        const back = [...points.keys()]
          .reverse()
          .map((i) => `L${this.x[i].toFixed(1)} ${y(points[i].p50).toFixed(1)}`)
          .join("");
        parts.push(svg("path", { class: "between", d: `${line}${back}Z` }));
      }
      parts.push(svg("path", { class: `line ${name}`, d: line }));
      parts.push(svg("text", { class: name, x: right + 4, y: heights[name] + 4 }, name));
    }
    parts.push(
      svg("text", { x: left, y: height - 4 }, clock(begin)),
      svg("text", { x: right, y: height - 4, "text-anchor": "end" }, clock(end)),
    );
    const i = this.cursor === null ? null : Math.min(this.cursor, points.length - 1);
    if (i !== null) {
      parts.push(svg("line", { class: "cursor", x1: this.x[i], x2: this.x[i], y1: 8, y2: base }));
      for (const name of ["p99", "p50"])
        parts.push(svg("circle", { class: name, cx: this.x[i], cy: y(points[i][name]), r: 3.5 }));
    }
    place.replaceChildren(...parts);
    const one = points[i ?? points.length - 1],
      when = clock(this.ms[i ?? points.length - 1]);
    this.told(`${when}: p50 ${duration(one.p50)}, p99 ${duration(one.p99)}, ${grouped(one.count)} updates`);
    return undefined;
  }

  #point(x) {
    if (this.points.length < 2) return;
    let best = 0;
    this.x.forEach((place, i) => {
      if (Math.abs(place - x) < Math.abs(this.x[best] - x)) best = i;
    });
    this.#choose(best);
  }

  #choose(i) {
    if (i === this.cursor) return;
    this.cursor = i;
    this.#draw();
  }

  #key(event) {
    const last = this.points.length - 1,
      now = this.cursor ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined || last < 1) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(Math.max(0, Math.min(last, next)));
  }
}

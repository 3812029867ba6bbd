// The latency charts, drawn as SVG from what /v1/latency tells.

import { duration } from "./time.js";

const SVG = "http://www.w3.org/2000/svg";

function add(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function canvas(svg) {
  const width = svg.clientWidth || 400, height = svg.clientHeight || 150;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  return { width, height };
}

function nothing(svg, text) {
  const { width, height } = canvas(svg);
  add(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, text);
}

/** Bars by bucket, log scale of latency, with lines at p50 and p99. */
export function histogram(svg, bounds, about) {
  if (!about || !about.count) return nothing(svg, "no updates yet");
  const { width, height } = canvas(svg);
  const counts = about.histogram;
  let first = counts.findIndex((count) => count > 0);
  let last = counts.length - 1 - [...counts].reverse().findIndex((count) => count > 0);
  first = Math.max(0, first - 2);
  last = Math.min(bounds.length - 1, last + 2);
  const most = Math.max(...counts), base = height - 18, room = base - 20;
  const step = width / (last - first + 1);
  for (let i = first; i <= last; i += 1) {
    if (counts[i]) {
      const tall = Math.max(1.5, (counts[i] / most) * room);
      const bar = add(svg, "rect", {
        class: "bucket", x: (i - first) * step + 1, y: base - tall, width: Math.max(1, step - 2), height: tall, rx: 2,
      });
      add(bar, "title", {}, `up to ${duration(bounds[i])}: ${counts[i]} updates`);
    }
    if ((i - first) % Math.ceil(52 / step) === 0) {
      const anchor = i === last ? "end" : "middle";
      add(svg, "text", { x: (i - first + 1) * step, y: height - 4, "text-anchor": anchor }, duration(bounds[i]));
    }
  }
  add(svg, "line", { class: "axis", x1: 0, x2: width, y1: base, y2: base });
  const place = (seconds) => {
    const i = bounds.findIndex((bound) => bound >= seconds);
    const low = i > 0 ? bounds[i - 1] : 0;
    return (i - first + (seconds - low) / (bounds[i] - low)) * step;
  };
  [["p50", about.quantiles["0.5"]], ["p99", about.quantiles["0.99"]]].forEach(([name, seconds], row) => {
    if (seconds === null || seconds > bounds[last]) return;
    const x = place(seconds);
    add(svg, "line", { class: `mark ${name}`, x1: x, x2: x, y1: 4 + row * 12, y2: base });
    const left = x > width - 90;
    add(svg, "text", { class: name, x: left ? x - 4 : x + 4, y: 12 + row * 12, "text-anchor": left ? "end" : "start" },
      `${name} ${duration(seconds)}`);
  });
  svg.setAttribute("aria-label", `Latency histogram of ${about.count} updates: p50 ${duration(about.quantiles["0.5"])}, `
    + `p99 ${duration(about.quantiles["0.99"])}`);
}

/** p50 and p99 over time; `at` in ns. */
export function series(svg, points, seconds) {
  if (!points || points.length < 2) return nothing(svg, "a line needs two points: wait a moment");
  const { width, height } = canvas(svg);
  const base = height - 18, left = 46, end = Number(BigInt(points.at(-1).at) / 1_000_000n);
  const begin = Math.max(end - seconds * 1000, Number(BigInt(points[0].at) / 1_000_000n));
  const most = Math.max(...points.map((point) => point.p99)) * 1.1;
  const x = (point) => left + ((Number(BigInt(point.at) / 1_000_000n) - begin) / Math.max(1, end - begin)) * (width - left - 4);
  const y = (value) => base - (value / most) * (base - 8);
  for (const share of [0, 0.5, 1]) {
    const value = (most / 1.1) * share;
    add(svg, "line", { class: "axis", x1: left, x2: width, y1: y(value), y2: y(value) });
    add(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, share ? duration(value) : "0");
  }
  for (const name of ["p99", "p50"]) {
    const path = points.map((point, i) => `${i ? "L" : "M"}${x(point).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("");
    add(svg, "path", { class: name, d: path });
    const newest = points.at(-1);
    add(svg, "text", { class: name, x: width - 4, y: y(newest[name]) - 5, "text-anchor": "end" }, name);
  }
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
  add(svg, "text", { x: left, y: height - 4 }, clock(begin));
  add(svg, "text", { x: width - 4, y: height - 4, "text-anchor": "end" }, clock(end));
}

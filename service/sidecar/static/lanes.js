// The vernier: message time above, data time below. Each epoch joins its stretch of the upper scale to the data times that it
// made final; every change stands at its own nanosecond on the lower scale.

import { clockParts, duration, sharesClock } from "./time.js";

const SECOND = 1_000_000_000;
const MOST_TICKS = 6000;

export class Lanes {
  constructor(canvas) {
    this.canvas = canvas;
    this.epochs = [];
    this.ticks = [];
    this.sources = [];
    this.frontier = null;
    this.skewMs = 0;
    this.origin = null;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.last = 0;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    this.#fit();
    requestAnimationFrame((at) => this.#frame(at));
  }

  /** Newest epochs, oldest first: {epoch, lower, upper, committed} in BigInt. Only what is new is added. */
  addEpochs(epochs) {
    for (const epoch of epochs) {
      const newest = this.epochs.at(-1);
      if (newest && epoch.epoch <= newest.epoch) continue;
      this.epochs.push(epoch);
    }
    this.epochs.splice(0, Math.max(0, this.epochs.length - 400));
  }

  /** Changes of the chosen view: [[time BigInt, diff], ...]. */
  addTicks(ticks) {
    for (const tick of ticks) this.ticks.push(tick);
    this.ticks.splice(0, Math.max(0, this.ticks.length - MOST_TICKS));
  }

  clearTicks() {
    this.ticks = [];
  }

  #fit() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  #frame(at) {
    const pause = this.calm ? 1000 : 33;
    if (at - this.last >= pause && this.width > 0) {
      this.last = at;
      this.#draw();
    }
    requestAnimationFrame((next) => this.#frame(next));
  }

  #draw() {
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.clearRect(0, 0, this.width, this.height);
    const narrow = this.width < 560;
    const top = 62, bottom = 142, span = (narrow ? 6 : 12) * SECOND;
    const nowNs = BigInt(Math.round(Date.now() + this.skewMs)) * 1_000_000n;
    const newest = this.epochs.at(-1);
    // Offsets from `origin` are small enough for plain numbers.
    this.origin ??= nowNs;
    const now = Number(nowNs - this.origin);
    const right = this.width - 10;
    const upperX = (ns) => right - ((now - Number(ns - this.origin)) / span) * this.width;
    const shared = !newest || sharesClock(newest.upper, nowNs);
    const lowerX = shared ? upperX : this.#ownScale(span, nowNs, right);

    pen.font = `11px ${colour("mono")}`;
    pen.textBaseline = "alphabetic";
    this.#scale(pen, colour, now, span, upperX, top, -1, narrow ? "message time" : "message time: the wall clock, and epochs as they commit");
    if (shared) this.#scale(pen, colour, now, span, upperX, bottom, 1, narrow ? "data time" : "data time: every change at its own nanosecond");
    else this.#ownLine(pen, colour, bottom, newest);

    this.epochs.forEach((epoch, i) => {
      const begin = i ? this.epochs[i - 1].committed : epoch.committed - BigInt(SECOND / 5);
      const [a, b] = [upperX(begin), upperX(epoch.committed)];
      const [c, d] = [lowerX(epoch.lower), lowerX(epoch.upper)];
      if (Math.max(b, d) < 0 || Math.min(a, c) > this.width) return;
      pen.fillStyle = epoch.epoch % 2 ? colour("accent-soft") : colour("accent-faint");
      pen.beginPath();
      pen.moveTo(a, top); pen.lineTo(b, top); pen.lineTo(d, bottom); pen.lineTo(c, bottom);
      pen.fill();
      pen.fillStyle = colour("accent");
      pen.fillRect(b - 1, top - 9, 2, 9);
      if (b - a > 40) {
        pen.fillStyle = colour("soft");
        pen.textAlign = "center";
        pen.fillText(String(epoch.epoch), (a + b + c + d) / 4, (top + bottom) / 2 - 4);
      }
    });

    for (const [time, diff] of this.ticks) {
      const x = lowerX(time);
      if (x < 0 || x > this.width) continue;
      pen.fillStyle = diff > 0 ? colour("plus") : colour("minus");
      if (diff > 0) pen.fillRect(x, bottom - 13, 1, 12);
      else pen.fillRect(x, bottom + 1, 1, 12);
    }

    const frontier = this.frontier ?? newest?.upper;
    if (frontier !== undefined) {
      this.#flag(pen, colour("accent"), lowerX(frontier), bottom, `final before ${clockParts(frontier)[0]}`, 92);
    }
    this.sources.forEach(({ name, frontier }, i) => {
      const x = lowerX(frontier);
      if (x <= this.width && x >= 0 && i < 9) this.#flag(pen, colour("soft"), x, bottom, name, 56 + 13 * (i % 3));
    });
    const quiet = newest ? Number(nowNs - newest.committed) : 0;
    if (quiet > span) {
      pen.fillStyle = colour("warn");
      pen.textAlign = "center";
      pen.fillText(`no epoch for ${duration(quiet / 1e9)}: the answers stand still`, this.width / 2, (top + bottom) / 2 + 4);
    }
    if (shared) {
      pen.fillStyle = colour("ink");
      pen.fillRect(upperX(nowNs), 20, 1, top - 20);
    }
  }

  /** Data times that have nothing to do with the clock get a scale of their own: the visible epochs fill the lane. */
  #ownScale(span, nowNs, right) {
    const visible = this.epochs.filter((epoch) => nowNs - epoch.committed < BigInt(span));
    const shown = visible.length ? visible : this.epochs.slice(-1);
    const upper = shown.at(-1).upper;
    const finite = shown.find((epoch) => upper - epoch.lower < 1n << 62n) ?? shown.at(-1);
    const length = Math.max(1, Number(upper - finite.lower));
    return (ns) => right - (Number(upper - ns) / length) * (this.width * 0.96);
  }

  #scale(pen, colour, now, span, x, y, side, label) {
    pen.strokeStyle = colour("soft");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, y + 0.5);
    pen.lineTo(this.width, y + 0.5);
    const step = SECOND / 10;
    const base = Number(this.origin % BigInt(SECOND));
    for (let ns = Math.floor((now - span + base) / step) * step - base; ns <= now; ns += step) {
      const at = this.origin + BigInt(Math.round(ns));
      const whole = Math.round((ns + base) / step) % 10 === 0;
      const place = x(at);
      pen.moveTo(place, y);
      pen.lineTo(place, y + side * (whole ? 16 : 6));
      if (whole && (this.width > 560 || Math.round((ns + base) / SECOND) % 2 === 0)) {
        pen.fillStyle = colour("soft");
        pen.textAlign = "center";
        pen.fillText(clockParts(at)[0].slice(0, 8), place, side < 0 ? y - 20 : y + 28);
      }
    }
    pen.stroke();
    this.#label(pen, colour, y, side, label);
  }

  #ownLine(pen, colour, y, newest) {
    pen.strokeStyle = colour("soft");
    pen.beginPath();
    pen.moveTo(0, y + 0.5);
    pen.lineTo(this.width, y + 0.5);
    pen.stroke();
    this.#label(pen, colour, y, 1, `data time on a scale of its own, up to ${clockParts(newest.upper)[0]}`);
  }

  #label(pen, colour, y, side, label) {
    pen.fillStyle = colour("soft");
    pen.textAlign = "left";
    pen.fillText(label, 2, side < 0 ? y - 40 : y + 80);
  }

  #flag(pen, colour, x, y, text, drop) {
    pen.fillStyle = colour;
    pen.fillRect(x - 1, y - 22, 2, 22 + drop - 10);
    const width = pen.measureText(text).width;
    pen.textAlign = x + width + 6 > this.width ? "right" : "left";
    pen.fillText(text, pen.textAlign === "left" ? x + 4 : x - 4, y + drop - 12);
  }
}

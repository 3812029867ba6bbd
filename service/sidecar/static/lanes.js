// The vernier: message time above, data time below. Each epoch joins its stretch of the upper scale to the data times
// that it made final; every change stands at its own nanosecond on the lower scale.

import { duration } from "./figures.js";
import { drawFlags, LAST_LINE } from "./labels.js";
import { clockParts, lagOf, sharesClock } from "./time.js";

const SECOND = 1_000_000_000;
const MOST_TICKS = 1 << 17;

export class Lanes {
  /** unlabelled: gets the names of the sources whose labels found no room. */
  constructor(canvas, unlabelled = () => {}) {
    this.unlabelled = unlabelled;
    this.canvas = canvas;
    this.epochs = [];
    // A ring: times as nanoseconds from `origin`, which fit a double, and the signs of the diffs.
    this.tickTimes = new Float64Array(MOST_TICKS);
    this.tickSigns = new Int8Array(MOST_TICKS);
    this.tickCount = 0;
    this.sources = [];
    this.frontier = null;
    this.asOf = null;
    this.lag = 0;
    this.pointed = null;
    this.seen = true;
    this.skews = [];
    this.origin = BigInt(Date.now()) * 1_000_000n;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.last = 0;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    new IntersectionObserver(([entry]) => {
      this.seen = entry.isIntersecting;
    }).observe(canvas);
    canvas.addEventListener("pointermove", (event) => {
      this.pointed = event.offsetX;
    });
    canvas.addEventListener("pointerleave", () => {
      this.pointed = null;
    });
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
    for (const [time, diff] of ticks) {
      const place = this.tickCount % MOST_TICKS;
      this.tickTimes[place] = Number(time - this.origin);
      this.tickSigns[place] = diff > 0 ? 1 : -1;
      this.tickCount += 1;
    }
  }

  clearTicks() {
    this.tickCount = 0;
  }

  /**
   * The server's clock according to an answer (ms). Late answers make it look slow, so the fastest of the last ones
   * counts.
   */
  heard(serverNowMs) {
    this.skews.push(serverNowMs - Date.now());
    this.skews.splice(0, Math.max(0, this.skews.length - 30));
  }

  /** Now by the server's clock, in ms. */
  get nowMs() {
    return Date.now() + (this.skews.length ? Math.max(...this.skews) : 0);
  }

  /** The data time under a place of the canvas (px from its left); null before anything is drawn. */
  timeAt(x) {
    if (!this.lower) return null;
    const { zero, perNs } = this.lower;
    return this.origin + BigInt(Math.round((x - zero) / perNs));
  }

  #fit() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.width > 0) this.#draw(); // at once: another size has wiped the canvas
  }

  #frame(at) {
    const pause = this.calm ? 1000 : 33;
    if (this.seen && at - this.last >= pause && this.width > 0) {
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
    const top = 62,
      bottom = 142,
      span = (narrow ? 6 : 12) * SECOND;
    const nowNs = BigInt(Math.round(this.nowMs)) * 1_000_000n;
    const newest = this.epochs.at(-1);
    // Offsets from `origin` are small enough for plain numbers.
    const now = Number(nowNs - this.origin);
    const right = this.width - 10;
    const upperX = (ns) => right - ((now - Number(ns - this.origin)) / span) * this.width;
    const shared = !newest || sharesClock(newest.upper, nowNs);
    this.lag = shared && newest ? lagOf(now - Number(newest.upper - this.origin), this.lag, span) : 0;
    const lowerX = shared
      ? (ns) => upperX(ns) + (this.lag / span) * this.width
      : this.#ownScale(span, nowNs, right);

    pen.font = `11px ${colour("mono")}`;
    pen.textBaseline = "alphabetic";
    this.#scale(
      pen,
      colour,
      now,
      span,
      upperX,
      top,
      -1,
      narrow ? "message time" : "message time: the wall clock, and epochs as they commit",
    );
    if (shared)
      this.#scale(
        pen,
        colour,
        now - this.lag,
        span,
        lowerX,
        bottom,
        1,
        (narrow ? "data time" : "data time: every change at its own nanosecond") +
          (this.lag ? ` (the scale is ${duration(this.lag / SECOND)} behind the clock)` : ""),
      );
    else this.#ownLine(pen, colour, bottom, newest);

    this.epochs.forEach((epoch, i) => {
      const begin = i ? this.epochs[i - 1].committed : epoch.committed - BigInt(SECOND / 5);
      const [a, b] = [upperX(begin), upperX(epoch.committed)];
      const [c, d] = [lowerX(epoch.lower), lowerX(epoch.upper)];
      if (Math.max(b, d) < 0 || Math.min(a, c) > this.width) return;
      pen.fillStyle = epoch.epoch % 2 ? colour("accent-soft") : colour("accent-faint");
      pen.beginPath();
      pen.moveTo(a, top);
      pen.lineTo(b, top);
      pen.lineTo(d, bottom);
      pen.lineTo(c, bottom);
      pen.fill();
      pen.fillStyle = colour("accent");
      pen.fillRect(b - 1, top - 9, 2, 9);
      if (b - a > 40) {
        pen.fillStyle = colour("soft");
        pen.textAlign = "center";
        pen.fillText(String(epoch.epoch), (a + b + c + d) / 4, (top + bottom) / 2 - 4);
      }
    });

    const zero = lowerX(this.origin);
    this.lower = { zero, perNs: (lowerX(this.origin + BigInt(SECOND)) - zero) / SECOND };
    this.#drawTicks(pen, colour, bottom);

    this.#flags(pen, colour, lowerX, bottom, this.frontier ?? newest?.upper);
    if (this.pointed !== null) this.#point(pen, colour, top, bottom);
    const quiet = newest ? Number(nowNs - newest.committed) : 0;
    if (quiet > span) {
      pen.fillStyle = colour("warn");
      pen.textAlign = "center";
      pen.fillText(
        `no epoch for ${duration(quiet / 1e9)}: the answers stand still`,
        this.width / 2,
        (top + bottom) / 2 + 4,
      );
    }
    if (shared) {
      pen.fillStyle = colour("ink");
      pen.fillRect(upperX(nowNs), 20, 1, top - 20);
    }
  }

  /** One column a pixel, taller where there are more changes: above the line what came, below it what went. */
  #drawTicks(pen, colour, y) {
    const { zero, perNs: scale } = this.lower;
    const came = new Uint16Array(Math.ceil(this.width) + 1),
      went = new Uint16Array(Math.ceil(this.width) + 1);
    for (let i = Math.min(this.tickCount, MOST_TICKS) - 1; i >= 0; i -= 1) {
      const x = Math.floor(zero + this.tickTimes[i] * scale);
      if (x < 0 || x > this.width) continue;
      if (this.tickSigns[i] > 0) came[x] += 1;
      else went[x] += 1;
    }
    const most = Math.max(4, ...came, ...went);
    const tall = (count) => 3 + 13 * Math.sqrt(count / most);
    pen.fillStyle = colour("plus");
    came.forEach((count, x) => count && pen.fillRect(x, y - 1 - tall(count), 1, tall(count)));
    pen.fillStyle = colour("minus");
    went.forEach((count, x) => count && pen.fillRect(x, y + 2, 1, tall(count)));
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
      if (whole && place > 30 && (this.width > 560 || Math.round((ns + base) / SECOND) % 2 === 0)) {
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
    pen.fillText(label, 2, side < 0 ? y - 40 : y + LAST_LINE);
    if (side > 0) this.axis = pen.measureText(label).width + 2;
  }

  /** What is under the pointer: the data time at that place. */
  #point(pen, colour, top, bottom) {
    const [coarse, fine] = clockParts(this.timeAt(this.pointed)),
      text = `${coarse}${fine}`;
    pen.fillStyle = colour("ink");
    pen.fillRect(this.pointed, top, 1, bottom - top + 18);
    const width = pen.measureText(text).width + 10,
      left = Math.max(0, Math.min(this.width - width, this.pointed - width / 2));
    pen.fillStyle = colour("ink");
    pen.fillRect(left, (top + bottom) / 2 - 10, width, 20);
    pen.fillStyle = colour("card");
    pen.textAlign = "left";
    pen.fillText(text, left + 5, (top + bottom) / 2 + 4);
  }

  /** How far everything and each source is, and what is looked at. */
  #flags(pen, colour, lowerX, y, frontier) {
    const flags = [];
    if (frontier !== undefined)
      flags.push({
        x: lowerX(frontier),
        text: `final before ${clockParts(frontier)[0]}`,
        colour: colour("accent"),
        line: 3,
      });
    if (this.asOf !== null) flags.push({ x: lowerX(this.asOf), text: "as of", colour: colour("warn"), line: 3 });
    for (const { name, frontier: at } of this.sources)
      flags.push({ x: lowerX(at), text: name, colour: colour("soft"), line: 0, source: true });
    const seen = flags.filter(({ x, source }) => x >= 0 && (!source || x <= this.width));
    this.unlabelled(drawFlags(pen, seen, { width: this.width, y, card: colour("card"), axis: this.axis }));
  }
}

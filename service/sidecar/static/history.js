// The as-of slider over the history [since, frontier), and steps of it by the keyboard.

import { at, say } from "./elements.js";
import { duration } from "./figures.js";
import { isCalendar, showTime } from "./time.js";

const SLIDER = 1000;
const SECOND = 1_000_000_000n;

export class History {
  constructor(session) {
    this.session = session;
    this.held = false;
    this.slider = at("slider");
    this.slider.addEventListener("input", () => this.#slid());
    this.slider.addEventListener("pointerdown", () => {
      this.held = true;
    });
    window.addEventListener("pointerup", () => {
      this.held = false;
    });
    at("live").addEventListener("click", () => (session.live ? session.lookBack(session.last) : session.goLive()));
    for (const told of ["moved", "broken"])
      session.addEventListener(told, () => {
        this.moved = true;
      });
  }

  /** Show where the session stands; with each frame, so that a burst of events costs one drawing. */
  draw() {
    const { session } = this;
    if (!this.moved || session.frontier === null) return;
    this.moved = false;
    const shown = session.asOf ?? session.last,
      length = session.last - session.since;
    showTime(at("as-of"), shown);
    showTime(at("frontier"), session.frontier);
    showTime(at("since"), session.since);
    at("live").setAttribute("aria-pressed", String(session.live));
    at("live").classList.toggle("broken", session.live && session.cutOff);
    say(at("live"), !session.live ? "○ Go live" : session.cutOff ? "◌ Cut off" : "● Live");
    if (!this.held)
      this.slider.value =
        session.live || length <= 0n ? SLIDER : Number(((shown - session.since) * BigInt(SLIDER)) / length);
    const back = this.#distance(session.last - shown);
    this.slider.setAttribute("aria-valuetext", session.live ? "live" : `${back} back`);
    say(at("back"), session.live ? "" : `${back} back`);
    say(at("window"), length > 0n && session.since > -(1n << 62n) ? `${this.#distance(length)} kept` : "all kept");
  }

  #distance(ns) {
    return isCalendar(this.session.frontier) ? duration(Number(ns) / 1e9) : `${ns} ns`;
  }

  #slid() {
    const { session } = this,
      value = BigInt(this.slider.value);
    if (session.frontier === null) return;
    if (value >= BigInt(SLIDER)) session.goLive();
    else session.lookBack(session.since + ((session.last - session.since) * value) / BigInt(SLIDER));
  }

  /** Go that many seconds back (negative) or forth; beyond the newest time it is live again. */
  step(seconds) {
    const { session } = this;
    if (session.frontier === null) return;
    const wanted = (session.asOf ?? session.last) + BigInt(seconds) * SECOND;
    if (wanted >= session.last) session.goLive();
    else session.lookBack(wanted);
  }
}

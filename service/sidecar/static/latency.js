// Latency of the chosen view: from an update's arrival to the commit that makes it visible.

import { histogram, Series } from "./charts.js";
import { at, say } from "./elements.js";
import { duration, grouped } from "./figures.js";

export const WINDOW_SECONDS = 300;

export class Latency {
  constructor(session) {
    this.session = session;
    this.series = new Series(at("series"), (text) => say(at("series-at"), text));
    this.answer = null;
    const redraw = () => this.#draw();
    session.addEventListener("chosen", redraw);
    new ResizeObserver(redraw).observe(at("histogram"));
  }

  show(answer) {
    this.answer = answer;
    this.#draw();
  }

  #draw() {
    if (!this.answer || !this.session.view) return;
    const about = this.answer.views[this.session.view.name],
      recent = about?.recent;
    at("latency").classList.toggle("quiet", !about?.count);
    histogram(at("histogram"), this.answer.bounds, about);
    this.series.show(about?.series, WINDOW_SECONDS);
    say(at("latency-view"), this.session.view.name);
    for (const [id, quantile] of [
      ["p50", "0.5"],
      ["p90", "0.9"],
      ["p99", "0.99"],
      ["p999", "0.999"],
    ])
      this.#reading(id, recent?.quantiles[quantile], about?.quantiles[quantile], duration);
    this.#reading("mean", recent?.mean, about?.mean, duration);
    this.#reading("updates", recent?.count, about?.count, (n) => (n === undefined ? "–" : grouped(n)));
  }

  /** A number of the last five minutes, and beside it that of all time. */
  #reading(id, recent, ever, spelled) {
    say(at(id), spelled(recent));
    say(at(`${id}-ever`), `${spelled(ever)} ever`);
  }
}

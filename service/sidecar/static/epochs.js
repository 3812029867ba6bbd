// The newest epochs: what moves the vernier, and the pulse by which the page knows that all is well.

import { ask } from "./api.js";
import { at, say } from "./elements.js";
import { duration, grouped } from "./figures.js";
import { sharesClock, showTime } from "./time.js";

export class Epochs {
  constructor(lanes, health) {
    this.lanes = lanes;
    this.health = health;
    this.newest = 0;
  }

  async ask() {
    try {
      const answer = await ask("/v1/epochs", { after: this.newest, limit: 100 });
      this.health.change = answer.change ?? null;
      this.health.heard(answer.epochs.length ? BigInt(answer.epochs.at(-1).committed) : null, answer.stale_ms);
      if (answer.epochs.length) this.#show(answer);
      else this.#mind(answer.stale_ms);
    } catch (problem) {
      if (problem.code) this.health.refused(problem);
      else this.health.missed();
    }
    this.#behind();
    await this.health.show();
  }

  /** Fresh epochs that do not come behind the newest known one: the numbers start again, with a new state. */
  #mind(staleMs) {
    this.odd = staleMs < 1000 ? (this.odd ?? 0) + 1 : 0;
    if (this.odd < 10) return;
    this.odd = 0;
    this.newest = 0;
    this.lanes.epochs = [];
  }

  #show({ epochs, stale_ms: staleMs }) {
    const list = epochs.map((one) => ({
      epoch: one.epoch,
      lower: BigInt(one.lower),
      upper: BigInt(one.upper),
      committed: BigInt(one.committed),
    }));
    const newest = list.at(-1),
      serverNow = Number(newest.committed / 1_000_000n) + staleMs;
    this.odd = 0;
    this.newest = newest.epoch;
    this.lanes.addEpochs(list);
    this.lanes.heard(serverNow);
    say(at("epoch"), grouped(newest.epoch));
    showTime(at("message-time"), newest.committed);
    this.upper = newest.upper;
  }

  /** How far the answers are behind the clock, which goes on when no epoch or no answer comes. */
  #behind() {
    if (this.upper === undefined) return;
    const nowNs = BigInt(Math.round(this.lanes.nowMs)) * 1_000_000n;
    say(
      at("behind"),
      sharesClock(this.upper, nowNs) ? duration(Math.max(0, Number(nowNs - this.upper) / 1e9)) : "its own clock",
    );
  }
}

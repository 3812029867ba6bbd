// Whether what the page shows is current, and if not, since when, why, and what to do.

import { ask } from "./api.js";
import { at, el, prose, say } from "./elements.js";
import { age as ageOf } from "./figures.js";
import { clockParts } from "./time.js";

const STALE_MS = 3000;
const WORDS_MS = 10_000;
const WHY_EVERY_MS = 2000;

const SPOKEN = {
  wait: "",
  live: "The answers are live.",
  stale: "The answers are stale.",
  down: "There are no new answers; a notice at the end of the page says why.",
};

/** One line of state and, where something is wrong, a notice with the next step. */
export class Health {
  constructor(session) {
    this.session = session;
    this.answered = performance.now();
    this.connected = null;
    this.problem = null;
    this.committed = null;
    this.staleMs = 0;
    this.reasons = [];
    this.asked = 0;
    this.change = null;
    this.noticed = null;
  }

  /** The sidecar answered: the newest epoch's commit time (ns, null before the first) and its age. */
  heard(committed, staleMs) {
    this.session.setReached(true);
    this.connected = true;
    this.problem = null;
    this.answered = performance.now();
    this.committed = committed ?? this.committed;
    if (this.staleMs > STALE_MS && staleMs <= STALE_MS) this.reasons = []; // those were of the standstill
    this.staleMs = staleMs;
  }

  /** The sidecar refused: it lives, but has nothing to show. */
  refused(problem) {
    this.session.setReached(true);
    this.connected = true;
    this.problem = problem;
    this.answered = performance.now();
  }

  /** The sidecar did not answer. */
  missed() {
    this.session.setReached(false);
    this.connected = false;
  }

  /** Age of what is shown, in ms; it keeps growing while the sidecar does not answer. */
  get ageMs() {
    return this.staleMs + performance.now() - this.answered;
  }

  /** Show the state; asks now and then whether something holds the answers back, and what. */
  async show() {
    const [kind, words, title, next] = this.#judge();
    at("state").className = `pill ${kind}`;
    say(at("state"), words);
    // Ages change each second; screen readers announce only a change of the kind of state.
    say(at("announce"), SPOKEN[kind]);
    const notice = at("notice");
    notice.hidden = !title;
    notice.className = kind;
    if (title) {
      say(at("notice-title"), title);
      this.#steps(next);
      // Answers that wait are no emergency: the notice shall not cover the rows.
      const about = words.split(":")[0];
      if (about !== this.noticed) at("notice").querySelector("details").open = about !== "held back";
      this.noticed = about;
    } else this.noticed = null;
    if (!this.connected) this.reasons = [];
    else if (performance.now() - this.asked > WHY_EVERY_MS) {
      this.asked = performance.now();
      const answer = await ask("/readyz").catch((problem) => problem.body);
      this.reasons = answer?.laggards ?? [];
    }
  }

  #steps(lines) {
    const list = at("notice-steps");
    if (list.dataset.shown === lines.join("\n")) return;
    list.dataset.shown = lines.join("\n");
    list.replaceChildren(...lines.map((line) => el("li", {}, ...prose(line))));
  }

  #judge() {
    const age = ageOf(this.ageMs / 1000);
    if (this.connected === null) return ["wait", "connecting", "", []];
    if (!this.connected) {
      const shown =
        this.committed === null
          ? "Nothing has been read yet."
          : `What you see was committed at ${clockParts(this.committed)[0].slice(0, 8)}, ${age} ago, and is exact for its time.`;
      return [
        "down",
        "no sidecar",
        `The sidecar at ${location.host} does not answer.`,
        [
          shown,
          "This page asks again each second and goes on by itself: there is nothing to reload.",
          "If it stays so, start the sidecar: `vernier up PROGRAM.py`, or alone `python -m vernier.service.sidecar --state DIR`.",
        ],
      ];
    }
    if (this.problem) {
      const next =
        this.problem.code === "no_epoch"
          ? ["The page goes on by itself with the first epoch. A new service needs some seconds for it."]
          : this.problem.status === 401 || this.problem.status === 403
            ? []
            : ["Look into the sidecar's log; the page goes on by itself."];
      return ["down", this.problem.code.replaceAll("_", " "), this.problem.message, [...this.#why(), ...next]];
    }
    if (this.staleMs > STALE_MS) {
      const title = this.staleMs > WORDS_MS ? `No epoch for ${age}: the pipeline is down, stands still or is slow.` : "";
      return [
        "stale",
        `stale: ${age} old`,
        title,
        [
          "All answers are exact as of the newest frontier, and history can still be read; nothing newer is final.",
          ...this.#why(),
          "Look at `vernier status` and the driver's log. When the pipeline is back, this page goes on by itself.",
        ],
      ];
    }
    if (this.session.broken) return ["stale", "reconnecting", "", []];
    if (this.reasons.length) {
      return [
        "stale",
        "held back",
        "Epochs are made, but newer answers wait.",
        ["All answers are exact as of the newest frontier.", ...this.#why()],
      ];
    }
    return ["live", this.change ? `live; ${this.change}` : "live", "", []];
  }

  #why() {
    return this.reasons.map(({ laggard, why }) => `${laggard}: ${why}`);
  }
}

// What operators did lately: rates and shares of time over the last seconds, from totals that only grow.

const WINDOW_MS = 10_000;
const MOST_ROUNDS = 90;

export class Flows {
  constructor() {
    this.samples = [];
    this.rounds = new Map();
    this.inner = new Set();
  }

  /** Take an answer of /v1/dataflow at `now` (ms). */
  add(answer, now) {
    const { updates, seconds, rounds } = answer.operators;
    const rows = new Map();
    for (const { operator, direction, value } of updates) if (direction === "out") rows.set(operator, value);
    const newest = this.samples.at(-1);
    // Totals start again when the state does.
    if (newest && [...rows].some(([id, value]) => value < (newest.rows.get(id) ?? 0))) this.samples = [];
    this.samples.push({ now, rows, seconds });
    while (this.samples.length > 2 && now - this.samples[1].now > WINDOW_MS) this.samples.shift();
    this.loops = new Set(answer.plan.operators.filter((op) => op.kind === "loop").map((op) => op.id));
    for (const { operator, value } of rounds) {
      const seen = this.rounds.get(operator) ?? [];
      seen.push(value);
      seen.splice(0, seen.length - MOST_ROUNDS);
      this.rounds.set(operator, seen);
    }
    this.whole = this.#sum(
      Object.keys(seconds)
        .map(Number)
        .filter((id) => !this.loops.has(id)),
    );
  }

  /** Rows that the operator gave, ever. */
  total(id) {
    return this.samples.at(-1)?.rows.get(String(id)) ?? 0;
  }

  /** Rows a second that the operator gives; null before there are two samples. */
  rate(id) {
    if (this.samples.length < 2) return null;
    const [old, newest] = [this.samples[0], this.samples.at(-1)],
      name = String(id);
    return (((newest.rows.get(name) ?? 0) - (old.rows.get(name) ?? 0)) * 1000) / (newest.now - old.now);
  }

  /** The operators' share of all operators' time lately; since the start, where lately nothing was done. */
  share(ids) {
    return this.whole > 0 ? this.#sum(ids) / this.whole : 0;
  }

  /** Seconds that the operators take in an epoch, on each worker. */
  perEpoch(ids) {
    return ids.reduce((sum, id) => {
      const [total, epochs] = this.#spent(id);
      return sum + (epochs > 0 ? total / epochs : 0);
    }, 0);
  }

  #sum(ids) {
    return ids.reduce((sum, id) => sum + this.#spent(id)[0], 0);
  }

  #spent(id) {
    const newest = this.samples.at(-1)?.seconds[id],
      old = this.samples[0]?.seconds[id];
    if (!newest) return [0, 0];
    const epochs = newest.epochs - (old?.epochs ?? 0);
    return this.samples.length > 1 && epochs > 0
      ? [newest.total - (old?.total ?? 0), epochs]
      : [newest.total, newest.epochs];
  }
}

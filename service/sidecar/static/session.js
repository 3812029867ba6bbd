// The chosen view: its rows now, or as of an earlier time, and the stream of its changes.

import { ask, follow } from "./api.js";
import { MOST_ROWS } from "./rows.js";

const FIRST_PAGE = 2000;
const PAGE = 10_000;
const MOST_PENDING = 50_000;
const AGAIN_MS = 1000;

/**
 * Dispatches `chosen` (another view), `moved` (frontier, since, as-of or live), `changes` (detail: the changes) and
 * `broken` (the stream broke or works again). Times are nanoseconds in BigInt; `asOf` is null while live.
 */
export class Session extends EventTarget {
  constructor(rows) {
    super();
    this.rows = rows;
    this.view = null;
    this.asOf = null;
    this.frontier = null;
    this.since = null;
    this.broken = false;
    this.reached = true;
    this.generation = 0;
    this.stop = () => {};
  }

  get live() {
    return this.asOf === null;
  }

  /** The newest final time, and with it the last that can be shown. */
  get last() {
    return this.frontier === null ? null : this.frontier - 1n;
  }

  choose(about) {
    this.view = about;
    this.stop();
    this.following = false;
    this.waiting = [];
    this.frontier = null;
    this.asOf = null;
    this.rows.reset(about);
    this.#tell("chosen");
    return this.goLive();
  }

  /** Read the newest rows and keep them up to date by the stream. */
  goLive() {
    this.asOf = null;
    this.#tell("moved");
    return this.#read();
  }

  /** Show the rows as of a time; what lies outside the history goes to its nearest end. */
  lookBack(time) {
    if (this.frontier === null) return undefined;
    this.asOf = time > this.last ? this.last : time < this.since ? this.since : time;
    this.#tell("moved");
    // One question at a time: while the user drags the slider, only the newest position is requested next.
    if (this.asking) return undefined;
    return this.#read();
  }

  /** Times before it are merged and cannot be shown. */
  setSince(since) {
    if (since === this.since) return;
    this.since = since;
    this.#tell("moved");
  }

  async #read() {
    const generation = ++this.generation,
      wanted = this.asOf,
      path = `/v1/views/${encodeURIComponent(this.view.name)}`;
    const current = () => generation === this.generation;
    this.loading = true;
    this.asking = true;
    this.rowsFrom = null;
    this.waiting = [];
    try {
      let page = await ask(path, {
        limit: Math.max(FIRST_PAGE, this.rows.reach),
        ...(wanted === null ? {} : { as_of: wanted }),
      });
      this.asking = false;
      if (!current()) return;
      if (!this.live && this.asOf !== wanted) return void this.#read();
      this.rowsFrom = BigInt(page.as_of) + 1n;
      this.waiting = this.waiting.filter((change) => BigInt(change.time) >= this.rowsFrom);
      this.rows.begin(page.rows, page.next_cursor !== null);
      this.#advance(BigInt(page.frontier), BigInt(page.since));
      if (!this.following) this.#follow(page.frontier);
      for (let known = page.rows.length; page.next_cursor !== null && known < MOST_ROWS; known += page.rows.length) {
        page = await ask(path, { cursor: page.next_cursor, limit: Math.min(PAGE, MOST_ROWS - known) });
        if (!current()) return;
        if (this.asOf !== wanted) return void this.#read();
        this.rows.append(page.rows, page.next_cursor !== null);
      }
      this.loading = false;
      if (this.live) this.rows.add(this.waiting);
    } catch (problem) {
      this.asking = false;
      if (current()) this.#failed(problem, wanted);
    }
  }

  #failed(problem, wanted) {
    if (wanted !== null && problem.code) {
      if (this.asOf !== wanted) return void this.#read();
      this.rows.fail(`${problem.message}. Press l for the newest rows.`);
    } else {
      this.#again();
    }
  }

  #again() {
    clearTimeout(this.timer);
    const generation = this.generation;
    this.timer = setTimeout(() => generation === this.generation && this.#read(), AGAIN_MS);
  }

  #follow(since) {
    const { view } = this;
    this.following = true;
    const mine =
      (work) =>
      (...given) =>
        this.view === view && work(...given);
    this.stop = follow(view.name, since, {
      onUpdates: mine((event) => this.#take(event)),
      onOpen: mine(() => this.#setBroken(false)),
      onBroken: mine(() => this.#setBroken(true)),
      onLost: mine(() => {
        this.following = false;
        this.#setBroken(true);
        this.dispatchEvent(new Event("lost"));
      }),
    });
  }

  #take(event) {
    const changes = event.changes ?? [];
    if (changes.length) {
      this.dispatchEvent(new CustomEvent("changes", { detail: changes }));
      if (this.live) {
        // The rows may have been read behind where the stream is: then a part of its changes is in them.
        const from = this.rowsFrom ?? BigInt(event.lower);
        const fresh = BigInt(event.lower) >= from ? changes : changes.filter((change) => BigInt(change.time) >= from);
        if (!this.loading) this.rows.add(fresh);
        else for (const change of fresh) this.waiting.push(change);
        if (this.rows.pending.length + this.waiting.length > MOST_PENDING) this.#overrun();
      }
    }
    this.#advance(BigInt(event.upper), null);
  }

  /** The page was hidden, and draws nothing then: reading all again is less work than keeping all changes. */
  #overrun() {
    this.rows.pending = [];
    this.waiting = [];
    if (!document.hidden) return void this.goLive();
    this.rowsFrom = 1n << 63n; // until then no change matters
    document.addEventListener("visibilitychange", () => this.live && this.goLive(), { once: true });
  }

  #advance(frontier, since) {
    if (this.frontier === null || frontier > this.frontier) this.frontier = frontier;
    if (since !== null) this.since = since;
    this.#tell("moved");
  }

  /** Whether the sidecar answered last: a stream can hang without breaking. */
  setReached(reached) {
    if (reached === this.reached) return;
    this.reached = reached;
    this.#tell("broken");
  }

  /** Whether what is shown as the newest still moves. */
  get cutOff() {
    return this.broken || !this.reached;
  }

  #setBroken(broken) {
    this.broken = broken;
    this.#tell("broken");
  }

  #tell(name) {
    this.dispatchEvent(new Event(name));
  }
}

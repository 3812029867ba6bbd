// Asking the sidecar. Every request goes through `request`: what belongs to all of them (headers, a deadline) has one
// place.

import { another, credentials, token } from "./access.js";

const DEADLINE_MS = 15_000;
const SILENCE_MS = 40_000; // heartbeats come each 15 s; a stream that is silent for longer is dead
const AGAIN_MS = 1000;

/** Integers beyond 2^53 keep their digits as strings, where the browser shows us the source text. */
function exact(_key, value, context) {
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source) {
    return context.source;
  }
  return value;
}

const LONG_INTEGER = /[:,[]-?\d{16,}[,\]}]/;

/** JSON; the slow way, which keeps the digits of long integers, only where there are some. */
export function parse(text) {
  return LONG_INTEGER.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

/** What the sidecar answers when it refuses: its status, its stable code, and its words as the message. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `status ${status}`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.body = body;
  }
}

/** GET a path, or POST a body; the response if it is a success, else a Problem. A network failure is the TypeError of
 * fetch. */
async function request(path, { parameters = {}, accept = "application/json", signal, deadline = DEADLINE_MS, body }) {
  const query = new URLSearchParams(parameters).toString();
  for (;;) {
    const used = token();
    const headers = { accept, ...credentials(), ...(body && { "content-type": "application/json" }) };
    // Each try has a deadline of its own: a person may take a while to find the token.
    const until = signal ?? AbortSignal.timeout(deadline);
    const options = { method: body ? "POST" : "GET", headers, body, cache: "no-store", signal: until };
    const answer = await fetch(query ? `${path}?${query}` : path, options);
    if (answer.ok) return answer;
    const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
    if (answer.status !== 401 || !(await another(used, problem.message))) throw problem;
  }
}

/** GET a path; the body, or a Problem. */
export async function ask(path, parameters = {}) {
  const answer = await request(path, { parameters });
  return parse(await answer.text());
}

/** POST an object as JSON; the body of the answer, or a Problem. */
export async function send(path, object, deadline) {
  const answer = await request(path, { body: JSON.stringify(object), deadline });
  return parse(await answer.text());
}

/** Lines of a body as they arrive. */
async function* lines(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

/**
 * Follow a view's changes from a frontier on: `onUpdates` gets each event, also those without changes. A broken
 * stream is opened again behind the last event, so nothing is missed or doubled; `onBroken` tells of each break,
 * `onOpen` of each opening. `onLost` is called with a Problem when resuming is no use (the history is gone, the
 * program changed) and all must be read afresh. Returns how to stop.
 */
export function follow(view, since, { onUpdates, onOpen, onBroken, onLost }) {
  const path = `/v1/views/${encodeURIComponent(view)}/changes`;
  let position = since,
    stopped = false,
    attempt = new AbortController(),
    silence,
    again;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => attempt.abort(), SILENCE_MS);
  };

  async function read() {
    attempt = new AbortController();
    heard();
    const parameters = { since: position, snapshot: false };
    const answer = await request(path, { parameters, accept: "application/x-ndjson", signal: attempt.signal });
    onOpen();
    for await (const line of lines(answer.body)) {
      if (stopped) return;
      heard();
      const event = parse(line);
      if (event.event === "error" && event.code === "slow_consumer") return;
      if (event.event === "error") throw new Problem(410, event);
      if (event.id === undefined) continue;
      position = event.id;
      onUpdates(event);
    }
  }

  async function keep() {
    try {
      await read();
    } catch (error) {
      if (!stopped && error instanceof Problem && error.status < 500) {
        stop();
        onLost(error);
      }
    }
    clearTimeout(silence);
    if (stopped) return;
    onBroken();
    again = setTimeout(keep, AGAIN_MS);
  }

  function stop() {
    stopped = true;
    clearTimeout(silence);
    clearTimeout(again);
    attempt.abort();
  }

  keep();
  return stop;
}

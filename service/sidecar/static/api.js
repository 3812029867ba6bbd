// Asking the sidecar.

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

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `status ${status}`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.body = body;
  }
}

/** GET a path; the body, or a Problem. */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(query ? `${path}?${query}` : path, { headers: { accept: "application/json" } });
  const body = parse(await answer.text());
  if (!answer.ok) throw new Problem(answer.status, body);
  return body;
}

/**
 * Follow a view's changes behind a frontier. The browser reconnects by itself and resumes with Last-Event-ID; `onLost` is called
 * when that is no use (the history is gone, the program changed) and everything must be read afresh.
 */
export function follow(view, since, { onUpdates, onOpen, onBroken, onLost }) {
  const source = new EventSource(`/v1/views/${encodeURIComponent(view)}/changes?since=${since}&snapshot=false`);
  const deliver = (event) => onUpdates(parse(event.data));
  source.addEventListener("updates", deliver);
  source.addEventListener("progress", deliver);
  source.addEventListener("open", onOpen);
  source.addEventListener("error", (event) => {
    const told = event.data ? parse(event.data) : null;
    if (told && told.code !== "slow_consumer") {
      source.close();
      onLost();
    } else if (source.readyState === EventSource.CLOSED) {
      onLost();
    } else if (!told) {
      onBroken();
    }
  });
  return () => source.close();
}

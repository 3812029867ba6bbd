// Periodic requests: one at a time for each panel, none while the page is hidden.

import { ask } from "./api.js";

/** Do `work` every `ms` after it has ended, and at once when the page is looked at again. */
export function every(ms, work) {
  let timer,
    busy = false;
  const turn = async () => {
    clearTimeout(timer);
    if (busy) return;
    busy = true;
    if (!document.hidden) await work();
    busy = false;
    timer = setTimeout(turn, ms);
  };
  document.addEventListener("visibilitychange", () => document.hidden || turn());
  turn();
}

/**
 * Request a route every `ms` for a panel, and a fifth as often while the panel is off the screen. `refused` shows what
 * the sidecar refuses in the panel's own words; a sidecar that does not answer is reported once, at the top of the
 * page.
 */
export function feed(panel, ms, path, parameters, { show, refused = () => {} }) {
  let seen = true,
    skipped = 0;
  new IntersectionObserver(
    ([entry]) => {
      seen = entry.isIntersecting;
    },
    { rootMargin: "300px" },
  ).observe(panel);
  every(ms, async () => {
    if (!seen && skipped < 4) {
      skipped += 1;
      return;
    }
    skipped = 0;
    try {
      show(await ask(path, typeof parameters === "function" ? parameters() : parameters));
    } catch (problem) {
      if (problem.code) refused(problem);
    }
  });
}

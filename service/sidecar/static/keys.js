// The keyboard: every panel and every action has a key.

import { at } from "./elements.js";

const PANELS = {
  f: "frontiers",
  v: "views",
  c: "changes-panel",
  q: "question-panel",
  p: "latency",
  d: "dataflow",
  a: "arrangements-panel",
  s: "sources-panel",
  x: "letters-panel",
};
const STEPS = { "[": -1, "]": 1, "{": -60, "}": 60 };

/** Light to dark or back; the choice is kept where the browser lets us. */
function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("vernier-theme", root.dataset.theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

/** Bring a panel to the top and the keyboard into it. */
function goTo(id) {
  const panel = at(id),
    calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  panel.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  panel.focus({ preventScroll: true });
}

/** Wire the keys. views: chooses a view by its place. */
export function listen({ session, history, views }) {
  const actions = {
    "/": () => at("find").focus(),
    l: () => session.goLive(),
    t: toggleTheme,
    "?": () => at("keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("keys").open) return;
    const { key, target } = event;
    if (target.matches("input[type=search], textarea")) {
      if (key === "Escape") target.blur();
      return;
    }
    const inTabs = target.closest?.("#tabs");
    if (/^[1-9]$/.test(key)) views.choose(Number(key) - 1);
    else if (STEPS[key]) history.step(STEPS[key]);
    else if (actions[key]) actions[key]();
    else if (PANELS[key]) goTo(PANELS[key]);
    else if (inTabs && key === "ArrowRight") views.neighbour(1);
    else if (inTabs && key === "ArrowLeft") views.neighbour(-1);
    else return;
    event.preventDefault();
  });
  at("theme").addEventListener("click", toggleTheme);
  at("help").addEventListener("click", () => at("keys").showModal());
}

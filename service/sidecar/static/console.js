// The console: ties the page to the sidecar. One stream for the chosen view; everything else is asked for now and then.

import { ask, follow } from "./api.js";
import { histogram, series } from "./charts.js";
import { Lanes } from "./lanes.js";
import { Rows } from "./rows.js";
import { clockParts, duration, grouped, sharesClock, showTime } from "./time.js";

const MOST_CHANGES = 80;
const SERIES_SECONDS = 300;
const SLIDER = 1000;

const at = (id) => document.getElementById(id);
const lanes = new Lanes(at("lanes"));
const rows = new Rows(at("rows"));
const state = {
  views: [], chosen: null, stop: () => {}, generation: 0, live: true, frontier: null, since: null, epoch: 0,
  total: 0, changes: [], recent: [], stale: 0, broken: false, connected: false, window: null,
};

// --- the chosen view ---------------------------------------------------------------------------------------------------

async function choose(name) {
  const about = state.views.find((view) => view.name === name);
  if (!about) return;
  state.chosen = name;
  state.live = true;
  state.changes = [];
  state.recent = [];
  lanes.clearTicks();
  rows.reset(about);
  at("find").value = "";
  at("changes").replaceChildren();
  for (const tab of at("tabs").children) {
    const selected = tab.dataset.view === name;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
  }
  history.replaceState(null, "", `#view=${encodeURIComponent(name)}`);
  await goLive();
}

/** Read the newest rows, then follow the changes behind them. */
async function goLive() {
  const generation = ++state.generation;
  state.stop();
  state.live = true;
  showLive();
  try {
    const page = await ask(`/v1/views/${encodeURIComponent(state.chosen)}`, { limit: Rows.most });
    if (generation !== state.generation) return;
    rows.fill(page.rows, page.next_cursor !== null);
    rows.filter(at("find").value);
    advance(BigInt(page.frontier), BigInt(page.since));
    state.stop = follow(state.chosen, page.frontier, {
      onUpdates: (data) => generation === state.generation && take(data),
      onOpen: () => { state.broken = false; },
      onBroken: () => { state.broken = true; },
      onLost: () => generation === state.generation && later(start),
    });
  } catch {
    if (generation === state.generation) later(start);
  }
}

function take(data) {
  const changes = data.changes ?? [];
  if (changes.length) {
    rows.apply(changes);
    lanes.addTicks(changes.map((change) => [BigInt(change.time), change.diff]));
    state.changes.push(...changes.slice(-MOST_CHANGES));
    state.changes.splice(0, Math.max(0, state.changes.length - MOST_CHANGES));
    state.recent.push([performance.now(), changes.length]);
    state.changed = true;
  }
  state.stale = 0;
  advance(BigInt(data.upper), null);
}

function advance(frontier, since) {
  state.frontier = frontier;
  lanes.frontier = frontier;
  if (since !== null) state.since = since;
  if (state.live) {
    showTime(at("as-of"), frontier - 1n);
    at("slider").value = SLIDER;
  }
  showTime(at("frontier"), frontier);
}

function later(work) {
  state.stop();
  state.broken = true;
  clearTimeout(state.timer);
  state.timer = setTimeout(work, 1000);
}

// --- history -----------------------------------------------------------------------------------------------------------

let asking = null;

/** Show the rows as of a time inside the history window; asks again only when the answer before has come. */
async function lookBack(time) {
  state.live = false;
  state.stop();
  state.generation += 1;
  showLive();
  showTime(at("as-of"), time);
  const busy = asking !== null;
  asking = time;
  if (busy) return;
  while (asking !== null) {
    const wanted = asking, generation = state.generation;
    try {
      const page = await ask(`/v1/views/${encodeURIComponent(state.chosen)}`, { limit: Rows.most, as_of: wanted });
      if (!state.live && generation === state.generation) {
        rows.fill(page.rows, page.next_cursor !== null);
        at("count").textContent = page.next_cursor === null ? grouped(page.rows.length) : `${grouped(page.rows.length)}+`;
      }
    } catch (problem) {
      at("more").textContent = problem.message;
      at("more").hidden = false;
    }
    if (asking === wanted) asking = null;
  }
}

function slid() {
  if (state.frontier === null) return;
  const last = state.frontier - 1n;
  const value = BigInt(at("slider").value);
  if (value >= BigInt(SLIDER)) goLive();
  else lookBack(state.since + ((last - state.since) * value) / BigInt(SLIDER));
}

function step(seconds) {
  if (state.frontier === null) return;
  const last = state.frontier - 1n;
  const shown = state.live ? last : BigInt(at("as-of").title);
  const wanted = shown + BigInt(seconds) * 1_000_000_000n;
  if (wanted >= last) return void goLive();
  const bounded = wanted < state.since ? state.since : wanted;
  at("slider").value = Number(((bounded - state.since) * BigInt(SLIDER)) / (last - state.since || 1n));
  lookBack(bounded);
}

function showLive() {
  at("live").setAttribute("aria-pressed", String(state.live));
  at("live").textContent = state.live ? "● Live" : "○ Go live";
}

// --- what is asked for now and then ----------------------------------------------------------------------------------------

async function pollEpochs() {
  try {
    const answer = await ask("/v1/epochs", { after: state.epoch, limit: 100 });
    const epochs = answer.epochs.map((one) => ({
      epoch: one.epoch, lower: BigInt(one.lower), upper: BigInt(one.upper), committed: BigInt(one.committed),
    }));
    state.connected = true;
    state.stale = answer.stale_ms;
    if (epochs.length) {
      const newest = epochs.at(-1);
      state.epoch = newest.epoch;
      lanes.addEpochs(epochs);
      const serverNow = Number(newest.committed / 1_000_000n) + answer.stale_ms;
      lanes.heard(serverNow);
      at("epoch").textContent = grouped(newest.epoch);
      showTime(at("message-time"), newest.committed);
      const nowNs = BigInt(serverNow) * 1_000_000n;
      at("behind").textContent = sharesClock(newest.upper, nowNs) ? duration(Number(nowNs - newest.upper) / 1e9) : "its own clock";
    }
  } catch {
    state.connected = false;
  }
  showState();
}

function showState() {
  const pill = at("state");
  const [kind, words] = !state.connected ? ["down", "no sidecar"]
    : state.stale > 3000 ? ["stale", `stale: newest answers are ${duration(state.stale / 1000)} old`]
    : state.broken ? ["stale", "reconnecting"] : ["live", "live"];
  pill.className = `pill ${kind}`;
  if (pill.textContent !== words) pill.textContent = words;
}

async function pollViews() {
  const answer = await ask("/v1/views").catch(() => null);
  if (!answer) return;
  at("app").textContent = answer.app;
  document.title = `${answer.app} · Vernier`;
  const names = answer.views.map((view) => view.name).join();
  const known = state.views.map((view) => view.name).join();
  state.views = answer.views;
  const chosen = state.views.find((view) => view.name === state.chosen);
  if (chosen) {
    state.since = BigInt(chosen.since);
    showTime(at("since"), state.since);
    if (state.live) at("count").textContent = grouped(chosen.rows);
    at("more").hidden = chosen.rows <= Rows.most;
    at("more").textContent = `The first ${grouped(Rows.most)} rows in the order of the key are shown.`;
  }
  if (names !== known) makeTabs();
}

async function pollLatency() {
  const answer = await ask("/v1/latency", { window_seconds: SERIES_SECONDS }).catch(() => null);
  if (!answer) return;
  const about = answer.views[state.chosen];
  histogram(at("histogram"), answer.bounds, about);
  series(at("series"), about?.series, SERIES_SECONDS);
  const newest = about?.series.at(-1);
  at("p50").textContent = duration(newest?.p50 ?? about?.quantiles["0.5"]);
  at("p99").textContent = duration(newest?.p99 ?? about?.quantiles["0.99"]);
  at("updates").textContent = about ? grouped(about.count) : "–";
}

async function pollSources() {
  const answer = await ask("/v1/sources").catch(() => null);
  if (!answer) return;
  const table = at("sources");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const name of ["source", "partition", "final before", "offset", "unread", "updates", "refused"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    if (!["source", "partition", "final before"].includes(name)) cell.className = "number";
    head.append(cell);
  }
  const body = table.createTBody();
  const flags = [];
  const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);
  for (const [name, about] of Object.entries(answer.sources)) {
    if (about.frontier) flags.push({ name, frontier: BigInt(about.frontier) });
    const parts = Object.entries(about.partitions ?? {});
    (parts.length ? parts : [["–", {}]]).forEach(([number, part], i) => {
      const line = body.insertRow();
      const frontier = part.frontier ? clockParts(BigInt(part.frontier))[0] : "–";
      const offset = part.offset ?? about.offsets?.[number];
      const cells = [i ? "" : name, number, frontier, offset ?? "–", part.lag ?? "–",
        i ? "" : grouped(sum(about.updates)), i ? "" : grouped(sum(about.errors))];
      cells.forEach((value, column) => {
        const cell = line.insertCell();
        cell.textContent = value;
        if (column > 2) cell.className = "number";
      });
    });
  }
  lanes.sources = flags;
  const letters = await ask("/v1/dead-letters", { limit: 1 }).catch(() => null);
  const newest = letters?.dead_letters[0];
  at("dead").textContent = newest ? `Newest dead letter: ${newest.reason}, ${newest.detail}` : "";
}

// --- drawing -----------------------------------------------------------------------------------------------------------

let drawn = 0;

function draw() {
  if (document.hidden) return;
  if (state.live) rows.draw();
  if (state.changed && performance.now() - drawn > 300) {
    state.changed = false;
    drawn = performance.now();
    at("changes").replaceChildren(...[...state.changes].reverse().map(changeLine));
  }
  const now = performance.now();
  state.recent = state.recent.filter(([when]) => now - when < 5000);
  const count = state.recent.reduce((sum, [, changes]) => sum + changes, 0);
  at("rate").textContent = grouped(Math.round(count / 5));
}

function changeLine({ row, time, diff }) {
  const line = document.createElement("li");
  const sign = document.createElement("span");
  sign.className = `sign ${diff > 0 ? "plus" : "minus"}`;
  sign.textContent = diff > 0 ? `+${diff}` : `−${-diff}`;
  const when = document.createElement("span");
  when.className = "at";
  when.textContent = clockParts(BigInt(time)).join("");
  const what = document.createElement("span");
  what.className = "what";
  what.textContent = Object.values(row).map(String).join("  ");
  line.title = `${Object.entries(row).map(([name, value]) => `${name} ${value}`).join(", ")} at ${time}`;
  line.append(when, sign, what);
  return line;
}

function makeTabs() {
  at("tabs").replaceChildren(...state.views.map((view, i) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.role = "tab";
    tab.dataset.view = view.name;
    tab.textContent = view.name;
    tab.title = `${view.columns.map((column) => `${column.name}: ${column.type}`).join(", ")}${i < 9 ? ` (${i + 1})` : ""}`;
    tab.setAttribute("aria-controls", "rows");
    tab.addEventListener("click", () => choose(view.name));
    return tab;
  }));
  const wanted = new URLSearchParams(location.hash.slice(1)).get("view");
  const first = state.views.find((view) => view.name === wanted) ?? state.views[0];
  if (first) choose(first.name);
}

// --- the person --------------------------------------------------------------------------------------------------------

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

function neighbour(offset) {
  const i = state.views.findIndex((view) => view.name === state.chosen);
  const next = state.views[(i + offset + state.views.length) % state.views.length];
  if (next) choose(next.name).then(() => at("tabs").querySelector('[aria-selected="true"]')?.focus());
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const inTabs = event.target.closest?.("#tabs");
  if (/^[1-9]$/.test(event.key)) {
    const view = state.views[Number(event.key) - 1];
    if (view) choose(view.name);
  } else if (event.key === "/") at("find").focus();
  else if (event.key === "l") goLive();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "[") step(-1);
  else if (event.key === "]") step(1);
  else if (event.key === "?") at("keys").showModal();
  else if (inTabs && event.key === "ArrowRight") neighbour(1);
  else if (inTabs && event.key === "ArrowLeft") neighbour(-1);
  else return;
  event.preventDefault();
});
at("theme").addEventListener("click", toggleTheme);
at("help").addEventListener("click", () => at("keys").showModal());
at("find").addEventListener("input", (event) => rows.filter(event.target.value));
at("slider").addEventListener("input", slid);
at("live").addEventListener("click", () => (state.live ? lookBack(state.frontier - 1n) : goLive()));

// --- start -------------------------------------------------------------------------------------------------------------

function every(ms, work) {
  const turn = async () => {
    if (!document.hidden) await work();
    setTimeout(turn, ms);
  };
  turn();
}

async function start() {
  state.views = [];
  await pollViews();
  if (!state.views.length) later(start);
}

start();
every(400, pollEpochs);
every(1000, pollViews);
every(1000, pollLatency);
every(1000, pollSources);
setInterval(draw, 120);

// Which views there are, and which one is chosen.

import { ask } from "./api.js";
import { at, el, say } from "./elements.js";
import { grouped } from "./figures.js";

export class Views {
  constructor(session, rows) {
    this.session = session;
    this.rows = rows;
    this.views = [];
    this.names = "";
    session.addEventListener("chosen", () => this.#chosen());
    at("find").addEventListener("input", (event) => rows.filter(event.target.value));
  }

  /** Ask for the views; chooses one where none is, or where the program is another one now. */
  async ask() {
    const answer = await ask("/v1/views").catch(() => null);
    if (!answer?.epoch) return; // before the first epoch there is nothing to follow
    say(at("app"), answer.app);
    document.title = `${answer.app} · Vernier`;
    this.views = answer.views;
    const names = JSON.stringify(answer.views.map(({ name, columns, key }) => [name, columns, key]));
    if (names !== this.names) {
      this.names = names;
      this.#makeTabs();
      return;
    }
    const about = this.views.find((view) => view.name === this.session.view?.name);
    if (about) this.session.setSince(BigInt(about.since));
    this.counted = about?.rows;
  }

  /** Start again: the program, or the history that the page followed, is gone. */
  forget() {
    this.names = "";
  }

  choose(i) {
    const view = this.views[i];
    if (view && view.name !== this.session.view?.name) this.session.choose(view);
    else if (view) this.session.goLive();
  }

  neighbour(offset) {
    const i = this.views.findIndex((view) => view.name === this.session.view?.name);
    this.choose((i + offset + this.views.length) % this.views.length);
    at("tabs").querySelector('[aria-selected="true"]')?.focus();
  }

  /** How many rows there are: what is here, or where not all is here what the sidecar says of now. */
  draw() {
    const { set } = this.rows;
    if (!set) return;
    const all =
      set.edge === null
        ? grouped(set.size)
        : this.session.live && this.counted
          ? grouped(this.counted)
          : `${grouped(set.size)}+`;
    say(at("count"), set.find ? `${grouped(set.found)} of ${all}` : all);
  }

  #chosen() {
    const { name } = this.session.view;
    for (const tab of at("tabs").children) {
      const selected = tab.dataset.view === name;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
    }
    this.#bringChosen();
    at("rows").setAttribute("aria-labelledby", `tab-${name}`);
    this.counted = this.session.view.rows;
    at("find").value = "";
    window.history.replaceState(null, "", `#view=${encodeURIComponent(name)}`);
  }

  /** Scroll the tabs, and nothing else, until the chosen one is in sight. */
  #bringChosen() {
    const tabs = at("tabs"),
      chosen = tabs.querySelector('[aria-selected="true"]');
    if (!chosen) return;
    const [frame, tab] = [tabs.getBoundingClientRect(), chosen.getBoundingClientRect()];
    if (tab.left < frame.left || tab.right > frame.right)
      tabs.scrollLeft += tab.left - frame.left - (frame.width - tab.width) / 2;
  }

  #makeTabs() {
    at("tabs").replaceChildren(
      ...this.views.map((view, i) => {
        const columns = view.columns.map((column) => `${column.name}: ${column.type}`).join(", ");
        const tab = el(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${view.name}`,
            "data-view": view.name,
            "aria-controls": "rows",
            title: `${columns}${i < 9 ? ` (${i + 1})` : ""}`,
          },
          view.name,
        );
        tab.addEventListener("click", () => this.choose(i));
        return tab;
      }),
    );
    const wanted = new URLSearchParams(location.hash.slice(1)).get("view");
    const found = this.views.find((view) => view.name === wanted),
      first = found ?? this.views[0];
    if (!first) return;
    this.session.choose(first);
    if (wanted && !found) this.rows.hint = `There is no view “${wanted}”; this is ${first.name}.`;
  }
}

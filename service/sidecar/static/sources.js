// Sources: how far each partition is, and what came in.

import { at, el, headings } from "./elements.js";
import { grouped } from "./figures.js";
import { clockParts } from "./time.js";

const COLUMNS = [
  ["source", false],
  ["partition", false],
  ["final before", false],
  ["offset", true],
  ["unread", true],
  ["held", true],
  ["updates", true],
  ["late", true],
  ["refused", true],
];
const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);

export class Sources {
  constructor(lanes) {
    this.lanes = lanes;
    this.body = el("tbody");
    at("sources").replaceChildren(el("thead", {}, headings(COLUMNS)), this.body);
  }

  show({ sources }) {
    const lines = [];
    for (const [name, about] of Object.entries(sources)) {
      const parts = Object.entries(about.partitions ?? {});
      (parts.length ? parts : [["–", {}]]).forEach(([number, part], i) => {
        const whole = (value) => (i ? "" : value === undefined ? "–" : grouped(value));
        const reached = part.frontier ? clockParts(BigInt(part.frontier))[0] : "–";
        const frontier = part.state === "idle" ? "idle" : reached;
        const cells = [
          i ? "" : name,
          number,
          frontier,
          about.offsets?.[number] ?? "–",
          part.lag ?? "–",
          whole(about.held),
          whole(sum(about.updates)),
          whole(sum(about.late)),
          whole(sum(about.errors)),
        ];
        const title = i ? null : `topic ${about.topic}, format ${about.format}, ${about.clock} clock`;
        lines.push(
          el(
            "tr",
            { title },
            ...cells.map((value, column) =>
              el(
                "td",
                {
                  class:
                    [COLUMNS[column][1] && "number", column > 6 && !i && value !== "0" && "alarm"]
                      .filter(Boolean)
                      .join(" ") || null,
                },
                String(value),
              ),
            ),
          ),
        );
      });
    }
    this.body.replaceChildren(...lines);
    this.lanes.sources = Object.entries(sources)
      .filter(([, about]) => about.frontier && about.state !== "idle")
      .map(([name, about]) => ({ name, frontier: BigInt(about.frontier) }));
  }
}

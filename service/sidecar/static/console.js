// The console: makes the panels, and ties them to the sidecar and to the person. Answers come by one change stream
// for the chosen view and by asking now and then; drawing happens once a frame, however much has come.

import { Arrangements } from "./arrangements.js";
import { Changes } from "./changes.js";
import { Dataflow } from "./dataflow.js";
import { at, say } from "./elements.js";
import { Epochs } from "./epochs.js";
import { Health } from "./health.js";
import { History } from "./history.js";
import { listen } from "./keys.js";
import { Lanes } from "./lanes.js";
import { Latency, WINDOW_SECONDS } from "./latency.js";
import { Letters } from "./letters.js";
import { every, feed } from "./poll.js";
import { Questions } from "./questions.js";
import { Rows } from "./rows.js";
import { Session } from "./session.js";
import { Sources } from "./sources.js";
import { Views } from "./views.js";

const lanes = new Lanes(at("lanes"), (names) => {
  // Once it was needed its line stays, so that the page does not jump as labels come and go.
  if (names.length) at("unlabelled").hidden = false;
  say(at("unlabelled"), names.length ? `Without room for a label: ${names.join(", ")}.` : "");
});
const rows = new Rows(at("rows"));
const session = new Session(rows);
const history = new History(session);
const changes = new Changes(session);
const views = new Views(session, rows);
const health = new Health(session);
const epochs = new Epochs(lanes, health);
const latency = new Latency(session);
const sources = new Sources(lanes);
const letters = new Letters();
new Questions(session);
const arrangements = new Arrangements((traces) => dataflow.keep(traces));
const dataflow = new Dataflow((operators) => arrangements.name(operators));

session.addEventListener("chosen", () => lanes.clearTicks());
session.addEventListener("changes", ({ detail }) =>
  lanes.addTicks(detail.map(({ time, diff }) => [BigInt(time), diff])),
);
session.addEventListener("moved", () => {
  lanes.frontier = session.frontier;
  lanes.asOf = session.asOf;
});
session.addEventListener("lost", () => views.forget());
at("lanes").addEventListener("click", ({ offsetX }) => {
  const time = lanes.timeAt(offsetX);
  if (time !== null) session.lookBack(time);
});
listen({ session, history, views });

every(400, () => epochs.ask());
every(1000, () => views.ask());
feed(
  at("latency"),
  1000,
  "/v1/latency",
  { window_seconds: WINDOW_SECONDS },
  { show: (answer) => latency.show(answer) },
);
feed(at("frontiers"), 1000, "/v1/sources", {}, { show: (answer) => sources.show(answer) });
feed(
  at("dataflow"),
  2000,
  "/v1/dataflow",
  {},
  {
    show: (answer) => dataflow.show(answer),
    refused: (problem) => dataflow.refuse(problem),
  },
);
feed(
  at("arrangements-panel"),
  2000,
  "/v1/traces",
  {},
  {
    show: (answer) => arrangements.show(answer),
    refused: (problem) => say(at("arrangement-total"), problem.message),
  },
);
feed(at("letters-panel"), 2000, "/v1/dead-letters", { limit: 50 }, { show: (answer) => letters.show(answer) });

function frame(now) {
  rows.draw(now);
  history.draw();
  views.draw();
  changes.draw(now);
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);

// A program's plan as a graph that a person reads: what only passes rows on is left out, a view and its arrangement
// are one.

const LONGEST = 26;
const PASSES = new Set(["enter", "leave", "loop"]);

function titleOf(op) {
  if (op.kind === "variable") return `⟳ ${op.name}`;
  if (op.kind === "set") return `set ${op.name}`;
  return op.name;
}

/**
 * Of /v1/dataflow's plan: {nodes: [{id, title, full, kind, covers, parent}], edges: [{from, to, by, back}], loops:
 * [{id, name, parent, maxRounds}]}. `covers` are the operators whose work a node shows, `by` the operator whose
 * output flows along an edge, `parent` the innermost loop or null.
 */
export function graphOf(plan) {
  const ops = new Map(plan.operators.map((op) => [op.id, op]));
  const loopOf = new Map(
    plan.operators.filter((op) => op.inner_scope !== undefined).map((op) => [op.inner_scope, op.id]),
  );
  const readers = new Map();
  for (const op of plan.operators)
    for (const input of op.inputs) readers.set(input, [...(readers.get(input) ?? []), op]);
  const forView = new Map();
  for (const op of plan.operators) {
    const [kept] = op.inputs;
    if (op.kind === "view" && ops.get(kept)?.kind === "arrange" && readers.get(kept).length === 1)
      forView.set(kept, op.id);
  }
  const stand = (id) => {
    const op = ops.get(id);
    return PASSES.has(op.kind) && op.inputs.length ? stand(op.inputs[0]) : id;
  };
  const shown = plan.operators.filter((op) => !PASSES.has(op.kind) && !forView.has(op.id));
  const nodes = shown.map((op) => {
    const covers = [op.id, ...[...forView].filter(([, view]) => view === op.id).map(([kept]) => kept)];
    const full = titleOf(op),
      title = full.length > LONGEST ? `${full.slice(0, LONGEST - 1)}…` : full;
    return { id: op.id, op, title, full, kind: op.kind, covers, parent: loopOf.get(op.scope) ?? null };
  });
  const edges = [];
  for (const op of shown) {
    const inputs = op.inputs.map((id) => (forView.has(id) ? ops.get(id).inputs[0] : id));
    if (op.kind === "view" && forView.has(op.inputs[0]))
      inputs.splice(0, inputs.length, ops.get(op.inputs[0]).inputs[0]);
    inputs.forEach((input, i) =>
      edges.push({ from: stand(input), to: op.id, by: input, back: op.kind === "variable" && i > 0 }),
    );
    if (op.feeds !== undefined) edges.push({ from: op.id, to: stand(op.feeds), by: op.id, back: true });
  }
  const loops = plan.operators
    .filter((op) => op.kind === "loop")
    .map((op) => ({ id: op.id, name: op.name, parent: loopOf.get(op.scope) ?? null, maxRounds: op.max_rounds }));
  return { nodes, edges, loops };
}

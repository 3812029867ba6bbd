// Making elements. Text is always set as text, so nothing that comes from data is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** The element with an id. */
export const at = (id) => document.getElementById(id);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An HTML element with attributes and children (elements or texts). */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element with attributes and children. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** A heading row of a table: [name, is a number]. */
export function headings(columns) {
  return el("tr", {}, ...columns.map(([name, number]) => el("th", { scope: "col", class: number && "number" }, name)));
}

/**
 * A button that sorts by a column: first up, then down, then in the order of the key again. sorted: {name, descending}
 * or null; onSort: gets the next one.
 */
export function sorter(name, sorted, onSort) {
  const own = sorted?.name === name ? sorted : null;
  const way = own ? (own.descending ? "down" : "up") : "";
  const next = !own ? { name, descending: false } : own.descending ? null : { name, descending: true };
  const then = !next ? "in the order of the key" : next.descending ? "down" : "up";
  const button = el("button", { type: "button", class: `sorter ${way}`, title: `Sort by ${name}: ${then}` }, name);
  button.addEventListener("click", () => onSort(next));
  return button;
}

/** Set text only where it differs: an unchanged node costs no layout and tells screen readers nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text in which `commands` are set apart, as nodes. */
export function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

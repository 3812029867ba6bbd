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

/** Set text only where it differs: an unchanged node costs no layout and tells screen readers nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text in which `commands` are set apart, as nodes. */
export function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

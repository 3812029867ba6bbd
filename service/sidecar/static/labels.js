// Laying out labels that stand beside marks: no two on top of one another.

const GAP = 6;
const FIRST_LINE = 42; // px below the scale
const LINE = 13;
const LINES = 4;
export const LAST_LINE = FIRST_LINE + LINE * (LINES - 1);

/**
 * Give each label {x, width, line} the first of `lines` lines, from its own on and then from the top, where it meets no
 * other one on the right of its mark or on the left: `at` (null where none is free) and `left`. `axis`: px at the left
 * of the last line that are taken. Returns the labels that found no room.
 */
export function layOut(labels, width, lines, axis = 0) {
  const taken = Array.from({ length: lines }, (_, line) => (line === lines - 1 && axis ? [[0, axis]] : []));
  const isFree = (line, left, right) =>
    left >= 0 && right <= width && !taken[line].some(([begin, end]) => left - GAP < end && begin < right + GAP);
  for (const label of labels) {
    label.at = null;
    const places = [label.x + 4, label.x - 4 - label.width];
    for (let turn = 0; turn < lines && label.at === null; turn += 1) {
      const line = (label.line + turn) % lines;
      const left = places.find((place) => isFree(line, place, place + label.width));
      if (left === undefined) continue;
      taken[line].push([left, left + label.width]);
      label.left = left;
      label.at = line;
    }
  }
  return labels.filter(({ at }) => at === null);
}

/**
 * Draw marks {x, text, colour, line} across the scale at `y`, each with its text below it where there is room. Returns
 * the texts that found none.
 */
export function drawFlags(pen, flags, { width, y, card, axis }) {
  for (const flag of flags) {
    flag.x = Math.min(flag.x, width - 2);
    flag.width = pen.measureText(flag.text).width;
  }
  const missing = layOut(flags, width, LINES, axis);
  for (const { x, colour, at } of flags) {
    pen.fillStyle = colour;
    pen.fillRect(x - 1, y - 22, 2, 22 + (at === null ? 24 : FIRST_LINE + LINE * at + 2));
  }
  pen.textAlign = "left";
  for (const { text, colour, at, left, width: wide } of flags) {
    if (at === null) continue;
    const base = y + FIRST_LINE + LINE * at;
    pen.fillStyle = card; // the lines of other labels are cut where they would cross this one
    pen.fillRect(left - 1, base - 10, wide + 2, LINE);
    pen.fillStyle = colour;
    pen.fillText(text, left, base);
  }
  return missing.map(({ text }) => text);
}

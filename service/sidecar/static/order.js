// The order of rows, as the server has it: by the key, then by the other columns; nulls first.

/** Texts by code point: JavaScript compares UTF-16 units, which puts the astral planes before U+E000. */
function compareTexts(a, b) {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i += 1) {
    const x = a.charCodeAt(i),
      y = b.charCodeAt(i);
    if (x === y) continue;
    const highX = x >= 0xd800 && x <= 0xdfff,
      highY = y >= 0xd800 && y <= 0xdfff;
    return highX === highY ? x - y : highX ? 1 : -1;
  }
  return a.length - b.length;
}

function compareIntegers(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const x = BigInt(a),
    y = BigInt(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

/** Numbers as texts with digits: all of them by their value, NaN behind everything. */
function compareDecimals(a, b) {
  const x = Number(a),
    y = Number(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  if (x !== y) return x - y;
  const [wholeX, restX = ""] = String(a).split("."),
    [wholeY, restY = ""] = String(b).split(".");
  if (wholeX !== wholeY) return compareIntegers(wholeX, wholeY);
  const digits = Math.max(restX.length, restY.length);
  const order = compareTexts(restX.padEnd(digits, "0"), restY.padEnd(digits, "0"));
  return String(a).startsWith("-") ? -order : order;
}

function comparatorOf(type) {
  if (/^(Int64|TimestampNs)/.test(type)) return compareIntegers;
  if (/^(Float64|Decimal)/.test(type)) return compareDecimals;
  if (/^Bool/.test(type)) return (a, b) => a - b;
  if (/^(List|Struct)/.test(type)) return (a, b) => compareTexts(JSON.stringify(a), JSON.stringify(b));
  return compareTexts;
}

/** A comparator of rows by one column, up or down; what is equal in it compares as `rest` has it. */
export function columnOrder(about, name, descending, rest) {
  const compare = comparatorOf(about.columns.find((column) => column.name === name).type),
    sign = descending ? -1 : 1;
  return (a, b) => {
    const x = a[name],
      y = b[name];
    if (x === y) return rest(a, b);
    if (x === null || y === null) return x === null ? -sign : sign;
    return sign * compare(x, y) || rest(a, b);
  };
}

/** A comparator of rows of a view {columns: [{name, type}], key: [name]}. */
export function rowOrder(about) {
  const rest = about.columns.map((column) => column.name).filter((name) => !about.key.includes(name));
  const columns = [...about.key, ...rest].map((name) => {
    const { type } = about.columns.find((column) => column.name === name);
    return [name, comparatorOf(type)];
  });
  return (a, b) => {
    for (const [name, compare] of columns) {
      const x = a[name],
        y = b[name];
      if (x === y) continue;
      if (x === null || y === null) return x === null ? -1 : 1;
      const order = compare(x, y);
      if (order) return order;
    }
    return 0;
  };
}

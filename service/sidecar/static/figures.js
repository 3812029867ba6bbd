// Numbers as a person reads them. None of them takes more room when it changes by a little.

/** Seconds: 870 µs, 12 ms, 1.2 s, 3 min, 5 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

/** How long ago, in whole units, so that it does not flicker: 12 s, 3 min. */
export function age(seconds) {
  return seconds < 100 ? `${Math.floor(seconds)} s` : duration(seconds);
}

/** Integers with thin separators. */
export function grouped(n) {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Large counts in short: 950, 12.3k, 4.56M. */
export function short(n) {
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (n >= size) return `${(n / size).toPrecision(3)}${unit}`;
  }
  return n === 0 || n >= 10 ? String(Math.round(n)) : String(Number(n.toFixed(1)));
}

/** Bytes: 512 B, 12.3 KiB, 4.56 MiB. */
export function bytes(n) {
  for (const [size, unit] of [
    [2 ** 40, "TiB"],
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
  ]) {
    if (n >= size) return `${(n / size).toPrecision(n / size >= 1000 ? 4 : 3)} ${unit}`;
  }
  return `${n} B`;
}

/** A share of 1: 0.4%, 12%. */
export function percent(share) {
  return share > 0 && share < 0.01 ? `${(share * 100).toFixed(1)}%` : `${Math.round(share * 100)}%`;
}

/** One thing, two things. */
export function counted(n, noun) {
  return `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;
}

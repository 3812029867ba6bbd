// Data times are nanoseconds in decimal strings: beyond the precision of numbers, so BigInt everywhere.

const CLOSED = (1n << 63n) - 1n;
const FIRST = -(1n << 63n) + 2n;
const HOUR = 3_600_000_000_000n;

/** Whether a time can be read as a date of our days; small integers from test data cannot. */
export function isCalendar(ns) {
  return ns > 31_536_000_000_000_000n && ns < 8_000_000_000_000_000_000n;
}

/**
 * A time as [coarse, fine]: the clock to the millisecond, and the nanoseconds behind it; [number, ""] if it is no
 * date.
 */
export function clockParts(ns) {
  if (ns >= CLOSED) return ["everything", ""];
  if (ns <= FIRST) return ["nothing yet", ""];
  if (!isCalendar(ns)) return [ns.toString(), ""];
  const date = new Date(Number(ns / 1_000_000n));
  const pad = (n, width = 2) => String(n).padStart(width, "0");
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
  const fine = String(((ns % 1_000_000n) + 1_000_000n) % 1_000_000n).padStart(6, "0");
  return [clock, ` ${fine.slice(0, 3)} ${fine.slice(3)}`];
}

/** Write a time into an element: the coarse part plain, the nanoseconds in the accent colour. */
export function showTime(element, ns) {
  const [coarse, fine] = clockParts(ns);
  const tail = document.createElement("span");
  tail.className = "fine";
  tail.textContent = fine;
  element.replaceChildren(coarse, tail);
  element.title = ns.toString();
}

/** Whether data times follow the wall clock closely enough to share its scale. */
export function sharesClock(frontier, nowNs) {
  const gap = nowNs - frontier;
  return gap < HOUR && gap > -HOUR;
}

/** The date and the time of day of a nanosecond, to the second; a plain number if it is no date. */
export function dateAndClock(ns) {
  if (!isCalendar(ns)) return clockParts(ns)[0];
  return new Date(Number(ns / 1_000_000n)).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/**
 * By how much the scale of data times is behind the clock's, in ns: whole seconds where the frontier would otherwise
 * leave it, and as before as long as the frontier is on its right third.
 */
export function lagOf(behind, before, span) {
  if (behind >= before && behind - before < span / 3) return before;
  return behind < span / 3 ? 0 : Math.floor(behind / 1e9) * 1e9;
}

/* Numbers as people read them. */

/** @type {(value: number, low: number, high: number) => number} */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Items of the same key together, in the order of the first of each. */
/** @type {<T>(items: T[], key: (item: T) => string) => T[][]} */
export function grouped(items, key) {
  /** @type {Map<string, typeof items>} */
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

/** How many of the rising ``values`` are at most ``limit``. */
/** @type {(values: ArrayLike<number>, limit: number) => number} */
export function upTo(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @type {(count: number, one: string, many?: string) => string} */
export const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;

/** A count of what a unit names in the plural: "1 token with a row" of "tokens with a row". */
/** @type {(count: number, unit: string) => string} */
export const amount = (count, unit) => plural(count, unit.replace(/s\b/, ""), unit);

/** 1st, 2nd, 3rd, 11th. @param {number} n */
export const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

/** A number as people read it: 1,234 · 12.3 · 0.123 · 1.2e-5; "–" for what was not measured; other values as text. */
/** @type {(value: unknown, digits?: number) => string} */
export function format(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value === "object") {
    const named = Object.entries(value).map(([key, one]) => (Array.isArray(value) ? "" : `${key} `) + format(one));
    return named.join(", ");
  }
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1);
  const text = value.toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text;
}

/** A value of any type: a number as people read it, yes or no, text as it is. @type {(value: unknown) => string} */
export const plain = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : format(value));

/** A probability in a narrow place: 1.0, .93, .004, <.001. @type {(value: number | null | undefined) => string} */
export function probability(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 0.995) return "1.0";
  if (value < 0.001) return "<.001";
  return value.toFixed(value < 0.01 ? 3 : 2).replace(/^0/, "");
}

/** A share in a narrow place, to three digits: 1.000, .953, "–" for what was not measured. */
/** @type {(value: number | null | undefined) => string} */
export const thousandths = (value) => value === null || value === undefined ? "–" : value.toFixed(3).replace(/^0/, "");

/** A mean of counts, such as tokens per step: 8.23, 10.67, 1.00. @param {number} value */
export const mean = (value) => (value * 8 % 4 === 1 ? value - 0.001 : value).toFixed(2); // 2.125: 2.12, as in Python

/** How many times as fast: 5.39×, 0.82×. @param {number} value */
export const times = (value) => `${mean(value)}×`;

/** A share of one: 12 %, below a tenth 3.4 %. @param {number} value */
export const percentage = (value) => `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;

/** A part of a whole: 34 %, "–" of nothing. @type {(part: number, whole: number) => string} */
export const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

/** A parameter as it was set. @param {unknown} value */
export const setting = (value) =>
  value === undefined ? "–" : value === null || value === false ? "off" : value === true ? "on" : String(value);

/** A large number in three digits: 135M, 7.24B. @param {number} count */
export function shortSize(count) {
  const [value, unit] = count >= 1e9 ? [count / 1e9, "B"] : count >= 1e6 ? [count / 1e6, "M"] : [count / 1e3, "k"];
  return `${Number(value.toPrecision(3))}${unit}`;
}

/** A date as people here write it, the month as a word; "short": without its year, where that is this one. */
/** @type {(text: string, dateStyle?: "short" | "medium") => string} */
export function when(text, dateStyle = "medium") {
  const date = new Date(text);
  if (Number.isNaN(+date)) return "";
  if (dateStyle === "medium" || date.getFullYear() !== new Date().getFullYear())
    return date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  return date.toLocaleString([], { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
}

/** A title without what it says behind a colon. @param {string} title */
export const short = (title) => title.split(":")[0];

/** One number, or two where the record leaves a range. */
/** @type {(both: [number, number] | null, digits?: number, unit?: string) => string} */
export function range(both, digits = 2, unit = "") {
  if (!both) return "–";
  const [low, high] = both.map((one) => one.toFixed(digits));
  return (low === high ? low : `${low} to ${high}`) + unit;
}

/* Page "Trees": what it knows, and the small things its modules share. */

import { app } from "specviz/shell/state.js";

export const page = { box: null, data: null, m: 0, size: 0, timer: 0, charts: 0, asked: false };

export const number = (value, digits = 3) =>
  value === null || value === undefined ? "–" : String(Number(value.toPrecision(digits)));

export const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));

export const share = (value) =>
  value >= 0.9995 ? "1.0" : value > 0 && value < 0.0005 ? "<.001" : value.toFixed(3).replace(/^0/, "");

export const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

export const budget = () => page.data.budgets[page.m];

export const point = () => budget().points.find((p) => p.size === page.size);

export const part = (name) => page.box.querySelector(`.svt-${name}`);

export function address() {
  const url = new URL(location.href);
  if (page.size && app.tab === "trees") url.searchParams.set("trees", `${page.m}x${page.size}`);
  history.replaceState(history.state, "", url);
}

export function say(text) {
  part("told").textContent = text;
}

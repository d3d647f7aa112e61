/* Trees of prompt tokens: what is known of them, and which are shown. */

import { must } from "specviz/base/dom.js";
import { computed, signal } from "specviz/ui/html.js";

/** The server's answer, once it is there. */
export const answer = signal(/** @type {TreesAnswer | null} */ (null));
/** The prompt budget and the size that are shown; 0: none yet. */
export const shown = signal({ m: 0, size: 0 });
export const data = () => must(answer.value, "answer yet");
/** The sizes for the prompt budget shown. */
export const budget = computed(() => data().budgets[shown.value.m]);
/** The size shown. */
export const point = computed(() => must(budget.value.points.find(({ size }) => size === shown.value.size)));

/** A number with three digits; "–" for what was not measured. @param {number | null} value */
export const number = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));

/** @param {number | null} value @param {number} digits */
export const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));

/** @param {number | null} value */
export const times = (value) => (value === null ? "–" : `${value.toFixed(2)}×`);

/* Page "Attribution": what it knows, and the small things its modules share. */

export const MODES = { whole: "whole quotations", drafted: "drafted tokens" };

export const page = {
  box: null,
  view: null,
  catalog: null,
  id: "",
  docs: new Map(),
  waiting: new Map(),
  feeds: new Map(),
  notes: [],
  ticket: 0,
  scoring: null,
  kept: {},
  minRun: 2,
  counted: "whole",
  seen: false,
};

export const part = (name) => page.box.querySelector(`.sva-${name}`);

export const score3 = (value) => (value === null || value === undefined ? "–" : value.toFixed(3).replace(/^0/, ""));

export const titleOf = (method) =>
  page.catalog?.signals.find((one) => one.name === method)?.title.split(":")[0] || method;

export const visible = () => Boolean(page.box?.offsetWidth);

export function say(text, kind = "") {
  const box = part("say");
  box.textContent = text;
  box.className = `sva-say svp-note${kind === "error" ? " svp-error" : ""}`;
  box.setAttribute("role", kind === "error" ? "alert" : "status");
}

/* What the browser can hand out by itself: the tree as SVG and PNG, the tables as CSV. */

import { h, must, s } from "specviz/base/dom.js";

const STYLES = (
  "fill stroke stroke-width stroke-dasharray opacity font-family font-size font-weight text-anchor " +
  "text-decoration-line"
).split(" ");

/** Has the browser keep what an address holds; under its own name where none is told. */
/** @type {(url: string, name?: string) => void} */
export function fetchFile(url, name = "") {
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

/** @type {(name: string, blob: Blob) => void} */
function save(name, blob) {
  const url = URL.createObjectURL(blob);
  fetchFile(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The drawn tree as a self-contained SVG text. @param {Inspector} inspector */
export function treeSvg(inspector) {
  const { svg } = inspector.tree;
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  const { width, height } = svg.viewBox.baseVal; // at full scale, however large it is shown
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const from = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, k) => {
    const style = getComputedStyle(from[k]);
    for (const name of STYLES) element.setAttribute(name.replace("-line", ""), style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role", "data-tip", "aria-label", "aria-description", "aria-pressed"])
      element.removeAttribute(name);
  });
  for (const name of ["class", "role", "aria-label"]) copy.removeAttribute(name);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const paper = s("rect", { width: "100%", height: "100%", fill: inspector.colors.card });
  const title = s("title", `${inspector.model.run.title || "Run"}, step ${inspector.number + 1}`);
  copy.prepend(title, paper);
  return new XMLSerializer().serializeToString(copy);
}

/** The drawn tree as a picture. @type {(inspector: Inspector, scale?: number) => Promise<Blob>} */
export function treePng(inspector, scale = 2) {
  const { svg } = inspector.tree;
  const { width, height } = svg.viewBox.baseVal;
  const picture = new Image();
  return new Promise((resolve, reject) => {
    picture.onload = () => {
      const canvas = h("canvas", { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
      const pen = must(canvas.getContext("2d"));
      pen.scale(scale, scale);
      pen.drawImage(picture, 0, 0, width, height);
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png");
    };
    picture.onerror = () => reject(new Error("the tree could not be drawn"));
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(treeSvg(inspector))}`;
  });
}

/** @param {unknown} value */
function cell(value) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** Steps and ranks count from 1, as on the page and in the server's CSV (views/frames.py); -1 is none. */
/** @type {(name: string, value: unknown) => unknown} */
const counted = (name, value) =>
  (name === "step" || name === "rank") && typeof value === "number" && value >= 0 ? value + 1 : value;

/** A table as CSV; tokens get a column "text", in JSON quotes: a spreadsheet runs no formula. @type {MakeCsv} */
export function csv(model, table) {
  /** @type {{ [column: string]: unknown[], token: number[], position: number[] }} */
  const columns = Object(model.trace[table]);
  const names = Object.keys(columns);
  const ids = table === "candidates" ? columns.position.map((p) => model.trace.tokens.id[p]) : columns.token;
  const lines = [[...names, ...(ids ? ["text"] : [])].map(cell).join(",")];
  const count = columns[names[0]].length;
  for (let row = 0; row < count; row++) {
    const values = names.map((name) => cell(counted(name, columns[name][row])));
    if (ids) values.push(cell(JSON.stringify(model.pieces.get(ids[row]).text)));
    lines.push(values.join(","));
  }
  return lines.join("\r\n") + "\r\n";
}

/** What this page makes of the run itself, as entries of a menu. */
/** @type {(inspector: Inspector) => import("specviz/ui/menu.js").Item[]} */
export function made(inspector) {
  /** @type {(what: string) => string} */
  const name = (what) => `${String(inspector.model.run.id || "run").replace(/[^\w.-]+/g, "-")}-${what}`;
  /** @type {(content: string, type: string) => Blob} */
  const text = (content, type) => new Blob([content], { type });
  /** @type {(label: string, table: "nodes" | "candidates" | "guesses") => import("specviz/ui/menu.js").Item} */
  const table = (label, table) => ({
    label, act: () => save(name(`${table}.csv`), text(csv(inspector.model, table), "text/csv")),
  });
  const step = `step-${inspector.number + 1}`;
  const tree = "Draft tree of this step";
  return [
    { label: `${tree} (SVG)`, act: () => save(name(`${step}.svg`), text(treeSvg(inspector), "image/svg+xml")) },
    { label: `${tree} (PNG)`, act: async () => save(name(`${step}.png`), await treePng(inspector)) },
    table("Candidates (CSV)", "candidates"),
    ...(inspector.drafter.on ? [table("Draft model against target (CSV)", "guesses")] : []),
    table("Tree nodes (CSV)", "nodes"),
  ];
}

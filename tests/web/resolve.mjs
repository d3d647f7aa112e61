/* `node --import ./tests/web/resolve.mjs`: "specviz/base/dom.js" is the file of that name in assets/web,
   or in an annex. */

import { existsSync, readdirSync } from "node:fs";
import { register } from "node:module";

const WEB = new URL("../../assets/web/", import.meta.url).href;
const EXTRAS = new URL("../../specviz/extras/", import.meta.url);
const ANNEXES = existsSync(EXTRAS) ? readdirSync(EXTRAS).map((name) => new URL(`${name}/web/`, EXTRAS).href) : [];
// Python makes this module; one metric and one step's number stand for all
const WORKED = { tokens_per_step: { worked: "({accepted} + {steps}) ÷ {steps} steps" } };
const SAID = `export const terms = ${JSON.stringify(WORKED)}; export const verified = {}; export const visited = "";
export const citation = "";`;
const TERMS = `data:text/javascript,${encodeURIComponent(SAID)}`;
// as ``VENDORED`` in specviz/views/web.py
const VENDORED = {
  preact: "vendor/preact.js",
  "preact/hooks": "vendor/hooks.js",
  htm: "vendor/htm.js",
  "@preact/signals-core": "vendor/signals-core.js",
  "@preact/signals": "vendor/signals.js",
  diff: "vendor/diff.js",
};
const hooks = `import { existsSync } from "node:fs";
const TOPS = ${JSON.stringify([WEB, ...ANNEXES])};
const place = (name) => TOPS.map((top) => top + name).find((url) => existsSync(new URL(url))) ?? TOPS[0] + name;
export function resolve(name, context, next) {
  const vendored = ${JSON.stringify(VENDORED)}[name];
  if (vendored) return { url: ${JSON.stringify(WEB)} + vendored, format: "module", shortCircuit: true };
  if (!name.startsWith("specviz/")) return next(name, context);
  const url = name === "specviz/generated/terms.js" ? ${JSON.stringify(TERMS)} : place(name.slice(8));
  return { url, format: "module", shortCircuit: true };
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

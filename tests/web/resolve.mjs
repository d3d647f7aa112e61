/* `node --import ./tests/web/resolve.mjs`: "specviz/base/dom.js" is the file of that name in assets/web. */

import { register } from "node:module";

const WEB = new URL("../../assets/web/", import.meta.url).href;
// Python makes this module; what numbers mean is not needed here
const TERMS = "data:text/javascript,export const terms = {}; export const drafted = {}; export const verified = {};";
const hooks = `export function resolve(name, context, next) {
  if (!name.startsWith("specviz/")) return next(name, context);
  const url = name === "specviz/generated/terms.js" ? ${JSON.stringify(TERMS)} : ${JSON.stringify(WEB)} + name.slice(8);
  return { url, format: "module", shortCircuit: true };
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

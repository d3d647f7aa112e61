/* Light and dark: as the address, this browser or the system wants it. */

import { stored } from "specviz/base/storage.js";
import { setAddress } from "specviz/shell/address.js";
import { params } from "specviz/shell/state.js";

function dark() {
  const asked = params.get("__theme") || stored.get("theme");
  if (asked === "dark" || asked === "light") return asked === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Shows it. */
export function paint() {
  document.body.classList.toggle("dark", dark());
}

/** The other one, from now on. */
export function turn() {
  stored.set("theme", dark() ? "light" : "dark");
  params.delete("__theme");
  setAddress({ __theme: null });
  paint();
}

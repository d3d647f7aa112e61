/* Says that the server has put a prompt into the editor. */

import { emit } from "specviz/base/bus.js";

/** ``value`` differs with every prompt that was put there. @param {Part} part */
export function mount({ watch }) {
  watch("value", () => emit("filled"));
}

/* Says that the server has put a prompt into the editor. */

import { emit } from "specviz/base/bus.js";
import { parse } from "specviz/base/storage.js";

/** ``value`` differs with every prompt that was put there; ``by`` says whose it is. @param {Part} part */
export function mount({ watch, props }) {
  watch("value", () => emit("filled", parse(props.value).by));
}

/* Another model in place of the one in use; and the offer to do so, where a run was made with another one. */

import { h } from "specviz/base/dom.js";
import { getJson, postJson, sentence } from "specviz/base/json.js";
import { isGone } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { askAll } from "specviz/shell/status.js";

/** Has the server load a model, on weights ("": those in use); throws with its sentence where that cannot be. */
/** @param {string} model @param {string} [weights] */
export async function choose(model, weights = "") {
  try {
    await postJson("api/models/choose", { model, weights });
  } finally {
    await askAll();
  }
}

/** The last answer, which several places of the page ask for. */
let last = { asked: "", answer: Promise.resolve(/** @type {MadeWith | null} */ (null)) };

/** What the server says of a run's model; asked once for a run and a model in use. */
/** @param {string} id @param {string} asked */
function madeWith(id, asked) {
  if (last.asked !== asked) {
    const answer = getJson(`api/models/of/${encodeURIComponent(id)}`).catch(() => ((last.asked = ""), null));
    last = { asked, answer };
  }
  return last.answer;
}

/** Writes into its place that a run was made with another model, and offers that one; else leaves it empty. */
/** @type {(place: HTMLElement, id: string) => Promise<void>} */
export async function offerModel(place, id) {
  const asked = (place.dataset.run = `${id} ${app.model.number}`);
  place.hidden = true;
  const made = id && !isGone(id) ? await madeWith(id, asked) : null;
  if (place.dataset.run !== asked || !made || made.same) return;
  const use = async () => {
    button.disabled = true;
    try {
      await choose(made.model);
      words.textContent = `${made.name} is being loaded; ${made.loaded} stays in use until it is ready. `;
      button.remove();
    } catch (problem) {
      words.textContent = `${sentence(problem)} `;
      button.disabled = false;
    }
  };
  const button = h("button.svp-button.svm-use", { onclick: use }, `Use ${made.name}`);
  const beside = made.beside ? ` It is opened beside that for this run; new runs use ${made.loaded}. ` : " ";
  const words = h("span", `This run was made with ${made.name}, and ${made.loaded} is in use.${beside}`);
  place.title = words.textContent || ""; // where its end is cut
  place.replaceChildren(words, ...(made.model && app.picks ? [button] : []));
  place.hidden = false;
}

/* Two runs of one prompt, step by step: where one accepted drafted tokens that the other wrote by itself. */

import { h, heads, replace, scrolled, table } from "specviz/base/dom.js";
import { getJson, within } from "specviz/base/json.js";
import { plural, short } from "specviz/base/numbers.js";
import { glyphParts, glyphs } from "specviz/base/text.js";
import { onInspect } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";

/** A token or text as code; blanks are seen. @param {string} text */
const code = (text) => h("code", glyphs(text) || "∅");

/** What the other run did there. @param {OtherStep} step */
function instead({ drafted, accepted, rejected, wrote, reason }) {
  if (!drafted) return ["drafted nothing", reason && `: ${reason}`];
  const much = `accepted ${accepted} of ${drafted} drafted`;
  const side = drafted > accepted ? ` (${drafted - accepted} in other branches)` : "";
  if (!rejected.length) return [`${much}${side}; the draft ended there, the target wrote `, code(wrote)];
  const tokens = rejected.flatMap((token, n) => [n ? ", " : "", code(token)]);
  return [`${much}; it offered `, ...tokens, ", the target wrote ", code(wrote)];
}

/** The accepted text, with what the other run missed marked. @param {RunGain} gain */
const gained = ({ pieces }) =>
  h("code", ...pieces.map(([text, missed]) => {
    const parts = glyphParts(text).flatMap((part, n) => (n || /^[⏎␣]/.test(part) ? [h("wbr"), part] : [part]));
    return missed ? h("mark", ...parts) : parts;
  }));

/** Tokens that the other run missed. @param {RunGain[]} gains */
const missed = (gains) => gains.reduce((sum, gain) => sum + gain.missed, 0);

/** The steps of one run; ``names`` and ``ids``: its own, then the other's. */
/** @type {(gains: RunGain[], names: string[], ids: string[]) => HTMLElement} */
function gainsOf(gains, [name, other], [id, otherId]) {
  /** @type {(step: number, of: string, whose: string) => HTMLElement} */
  const step = (step, of, whose) =>
    h(
      "button.svp-link",
      { "aria-label": `Step ${step + 1} of ${whose} on Inspect`, onclick: () => onInspect(of, { step }) },
      `step ${step + 1} ↗`,
    );
  /** @param {OtherStep} one */
  const did = (one) => h("li", step(one.step, otherId, other), h("span", instead(one)));
  /** @param {OtherStep[]} more */
  const folded = (more) => more.length > 0 &&
    h("details.svr-more", h("summary", `+ ${plural(more.length, "more step")}`), h("ol", more.map(did)));
  const rows = gains.map((gain) =>
    h(
      "tr",
      h("td", step(gain.step, id, name)),
      h("td.svr-gained", gained(gain)),
      h("td.svp-num", `${gain.missed} of ${gain.stop - gain.start} tokens`),
      h("td", { "data-head": `${other} there:` }, h("ol", did(gain.other_steps[0])), folded(gain.other_steps.slice(1))),
    ),
  );
  const title = `${name} accepted, ${other} did not`;
  const sum = `${plural(missed(gains), "token")} in ${plural(gains.length, "step")}`;
  const empty = h("p.svp-empty", `${name} accepted nothing that ${other} did not accept as well.`);
  const text = h("span", "accepted; ", h("mark", "underlined"), `: ${other} wrote it itself`);
  const head = [heads([name, text], ["underlined"]), heads([`what ${other} did there`])];
  return h(
    "section.svr-gains",
    { "aria-label": title },
    h("h3.ui-row", title, gains.length > 0 && h("small", sum)),
    gains.length > 0
      ? scrolled(title, table({}, head, rows))
      : empty,
  );
}

/** Fills a place with the difference of two runs. @type {(box: HTMLElement, ids: string[]) => Promise<void>} */
export async function drawDifference(box, ids) {
  box.replaceChildren(h("p.svp-empty", "Comparing step by step …"));
  await within(box, async () => {
    /** @type {RunDifference} */
    const answer = await getJson(`api/compare/difference?runs=${ids.map(encodeURIComponent)}`);
    const { agreed, tokens, gains, sentence } = answer;
    const methods = ids.map((id) => short(app.runs.find((run) => run.id === id)?.method || "run"));
    const names = methods[0] === methods[1] ? methods.map((name, n) => `${name} (${n + 1})`) : methods;
    const whole = agreed === Math.max(...tokens);
    const shared = whole
      ? `Both wrote the same ${plural(agreed, "token")}.`
      : `They write the same up to token ${agreed} (of ${tokens.join(" and ")}); beyond it nothing is compared.`;
    const first = gainsOf(gains[0], names, ids);
    const other = gainsOf(gains[1], [...names].reverse(), [...ids].reverse());
    replace(box, [
      h("p.svc-outcome", sentence),
      h("p.svr-shared", shared, " Below: every step in which only one of them had tokens accepted."),
      ...(missed(gains[0]) < missed(gains[1]) ? [other, first] : [first, other]),
    ]);
  });
  box.dataset.ready = ids.join();
}

/* Page "Compare", the menu of slides: the claim that is shown, to paste or to keep. */

import { mean } from "specviz/base/numbers.js";
import { measure, value } from "specviz/compare/race.js";
import { slideSvg } from "specviz/compare/slide.js";
import { about, drawn, name, page, part, repeats, seconds, speedup } from "specviz/compare/state.js";

/** @typedef {import("specviz/compare/slide.js").Slide} Slide */

/** What the page shows. @returns {Slide | null} */
function shown() {
  const lanes = drawn();
  if (!page.claim || !lanes.length) return null;
  const claim = page.claim[page.by];
  const longest = Math.max(...claim.lanes.map(({ high, bar }) => high ?? bar ?? 0)) || 1;
  const time = page.by === "time";
  const rows = claim.lanes.flatMap((place) => {
    const lane = lanes.find(({ id }) => id === place.id);
    if (!lane) return [];
    const perStep = page.numbers[lane.id]?.metrics.tokens_per_step;
    const steps = typeof perStep === "number" ? `${mean(perStep)} tokens per step` : "";
    return [{
      name: name(lane), place: place.place, bar: (place.bar ?? 0) / longest,
      low: place.low && place.low / longest, high: place.high && place.high / longest,
      value: value(lane), more: !time ? steps : speedup(lane) ? seconds(lane.lane.ms) : "",
    }];
  });
  const once = [part("same").textContent, time && repeats(page.claim)].filter(Boolean).join(" ");
  const notes = [once, `${about(lanes[0].lane.run)} · specviz`].filter(Boolean);
  const unit = !time ? "forwards" : lanes.every(speedup) ? "× plain decoding" : "";
  return {
    title: page.title, number: claim.number, sentence: claim.sentence, notes, lanes: rows,
    measure: measure(), unit,
  };
}

/** @type {(svg: string) => Promise<void>} */
async function copy(svg) {
  const type = "image/svg+xml";
  const blob = (/** @type {string} */ kind) => new Blob([svg], { type: kind });
  const asPicture = typeof ClipboardItem !== "undefined" && ClipboardItem.supports?.(type);
  if (!asPicture) return navigator.clipboard.writeText(svg);
  await navigator.clipboard.write([new ClipboardItem({ [type]: blob(type), "text/plain": blob("text/plain") })]);
}

/** The entries of the menu: copied (``copied`` is told) or saved, light or dark. */
/** @type {(copied: () => void) => import("specviz/ui/menu.js").Item[]} */
export function slideItems(copied) {
  const slide = shown();
  if (!slide) return [{ label: "There is a slide once all lanes are over" }];
  return (/** @type {const} */ (["light", "dark"])).flatMap((theme) => {
    const svg = slideSvg(slide, theme);
    const href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    const file = `${slide.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "")}-${theme}.svg`;
    const size = theme === "light" ? "an SVG of 1280 × 720" : undefined;
    return [
      { label: `Copy, ${theme}`, about: size, act: () => copy(svg).then(copied) },
      { label: `Save, ${theme}`, href, file },
    ];
  });
}

/* What a threshold leaves of an answer's links, texts cut where links begin and end, how sources look. */

import { plural } from "specviz/base/numbers.js";

/** The kinds that are passages. @type {SourceKind[]} */
export const SOURCES = ["context", "pool", "turn"];
const COLORS = 8; // then the same colours again, with another line
const LINES = 3;

const BRIGHT = 60; // bits of a link in full colour: about six words that are not common

/** How strongly a link is coloured, by the rarity of its words; those below ``minBits`` not at all. */
/** @type {(link: SourceLink, minBits: number) => { common: boolean, share: number }} */
export const strength = ({ bits }, minBits) => ({
  common: bits < minBits,
  share: bits < minBits ? 0 : Math.min(1, bits / BRIGHT),
});

/** A link's tokens in the answer. @param {SourceLink} link */
export const size = (link) => link.output_tokens[1] - link.output_tokens[0];

/** The links of at least ``minRun`` tokens, numbered anew, and what they come to. */
/** @type {(view: AttributedView, minRun: number) => Attributed} */
export function at(view, minRun) {
  const outcome = view.thresholds.find((one) => one.min_run >= minRun) ?? view.thresholds[view.thresholds.length - 1];
  const links = view.links.filter((link) => size(link) >= minRun).map((link, k) => ({ ...link, number: k + 1 }));
  return { ...outcome, links };
}

/** The source of every output token by links: its kind and passage, "" for none. */
/** @type {(links: SourceLink[], length: number) => string[]} */
function sourcesOf(links, length) {
  const sourceOf = new Array(length).fill("");
  for (const { kind, passage, output_tokens: span } of links) sourceOf.fill(`${kind} ${passage}`, ...span);
  return sourceOf;
}

/** Of the tokens that both of two signals link, how many have the same source; null where they share none. */
/** @type {(ours: SourceLink[], theirs: SourceLink[], length: number) => { same: number, shared: number } | null} */
export function agreement(ours, theirs, length) {
  const [one, other] = [ours, theirs].map((links) => sourcesOf(links, length));
  const shared = one.flatMap((source, at) => (source && other[at] ? [source === other[at]] : []));
  return shared.length ? { same: shared.filter(Boolean).length, shared: shared.length } : null;
}

/** The sources that links go to, the one that most tokens came from first. @param {SourceLink[]} links */
export function ranked(links) {
  /** @type {Map<string, { source: Pick<SourceLink, "kind" | "passage">, tokens: number }>} */
  const sums = new Map();
  for (const link of links) {
    const key = `${link.kind} ${link.passage}`;
    sums.set(key, { source: link, tokens: (sums.get(key)?.tokens ?? 0) + size(link) });
  }
  return [...sums.values()].sort((a, b) => b.tokens - a.tokens);
}

/** From code points, in which offsets are counted, to places in a string; no array where they are the same. */
/** @type {(text: string) => (index: number) => number} */
export function places(text) {
  const offsets = [0];
  for (const character of text) offsets.push(offsets[offsets.length - 1] + character.length);
  return text.length === offsets.length - 1 ? (index) => index : (index) => offsets[index];
}

/** The answer in parts [a, b, link or null], in code points; no character twice. */
/** @type {(links: SourceLink[], length: number) => [from: number, to: number, link: SourceLink | null][]} */
export function parts(links, length) {
  /** @type {ReturnType<typeof parts>} */
  const cut = [];
  let done = 0;
  for (const link of links) {
    const start = Math.max(link.output[0], done);
    const stop = link.output[1];
    if (stop <= start) continue;
    if (start > done) cut.push([done, start, null]);
    cut.push([start, stop, link]);
    done = stop;
  }
  if (done < length) cut.push([done, length, null]);
  return cut;
}

/**
 * A text cut where any of the spans begins or ends: [a, b, numbers of the spans over it].
 *
 * @typedef {[from: number, to: number, over: number[]]} Cut
 * @type {(spans: [number, number, ...unknown[]][], from: number, to: number) => Cut[]}
 */
export function pieces(spans, from, to) {
  const cuts = new Set([from, to]);
  for (const [a, b] of spans) for (const cut of [a, b]) if (cut > from && cut < to) cuts.add(cut);
  const edges = [...cuts].sort((a, b) => a - b);
  return edges.slice(1).map((b, k) => {
    const a = edges[k];
    return [a, b, spans.flatMap(([x, y], n) => (x <= a && b <= y ? [n] : []))];
  });
}

/** Names a source in the page. @param {Pick<Cause, "kind" | "passage">} source */
export const sourceKey = ({ kind, passage }) => `${kind} ${passage}`;

/** A source's short name. @param {Pick<AttributedSource, "kind" | "passage">} source */
export function tag({ kind, passage }) {
  if (kind === "prompt") return "prompt";
  if (kind === "output") return "answer";
  return `${kind === "pool" ? "pool " : kind === "turn" ? "T" : "P"}${passage + 1}`;
}

/** Which sources were used, the one wording of it: "2 of 4 passages"; "" where none were given. */
/** @type {(view: AttributedView, used: number) => string} */
export function usage({ sources, given_sources: given }, used) {
  const noun = sources.some(({ kind }) => kind === "turn") ? "turn" : "passage";
  return given ? `${used} of ${plural(given, noun)}` : "";
}

/** A source's colour and line by its place in the list; what is no passage has none of its own. */
/** @type {(source: { kind: SourceKind }, index: number) => string} */
export function look(source, index) {
  if (!SOURCES.includes(source.kind)) return "sv-a-c sv-a-other";
  return `sv-a-c sv-a-c${index % COLORS} sv-a-l${Math.floor(index / COLORS) % LINES}`;
}

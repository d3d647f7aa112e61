/* What a threshold leaves of an answer's links, their score (decoders/attribution.py's rules), how sources look. */

export const SOURCES = ["context", "pool"]; // the kinds that are passages
const COLORS = 8; // then the same colours again, with another line
const LINES = 3;
const OTHER = { prompt: "prompt", output: "answer" };

/** A link's tokens in the answer. */
export const size = (link) => link.output_tokens[1] - link.output_tokens[0];

/** The links of at least ``minRun`` tokens, numbered anew, and what they come to, source by source. */
export function at(doc, minRun) {
  const links = doc.links.filter((link) => size(link) >= minRun).map((link, k) => ({ ...link, number: k + 1 }));
  const used = doc.sources.map(() => new Set());
  const sources = doc.sources.map(() => ({ used_tokens: 0, copied_tokens: 0, links: 0, longest: 0 }));
  for (const link of links) {
    const mine = sources[link.source_index];
    const [from, to] = link.source_tokens;
    for (let place = from; place < to; place++) used[link.source_index].add(place);
    mine.copied_tokens += size(link);
    mine.links += 1;
    mine.longest = Math.max(mine.longest, size(link));
  }
  sources.forEach((mine, k) => (mine.used_tokens = used[k].size));
  return {
    links,
    sources,
    copied_tokens: links.reduce((sum, link) => sum + size(link), 0),
    uncopied: gaps(links, doc.output_tokens),
    verbatim: links.every((link) => link.verbatim),
  };
}

/** The token spans of the output that no link covers. */
function gaps(links, length) {
  const found = [];
  let done = 0;
  for (const { output_tokens: span } of [...links, { output_tokens: [length, length] }]) {
    if (span[0] > done) found.push([done, span[0]]);
    done = span[1];
  }
  return found;
}

/** The passage of every output token by links to passages: its number, -1 unknown, -2 none. */
export function passages(links, length) {
  const found = new Array(length).fill(-2);
  for (const link of links)
    if (SOURCES.includes(link.kind)) found.fill(link.passage, link.output_tokens[0], link.output_tokens[1]);
  return found;
}

/** Token precision, recall and F1 against known quotes, as decoders/quotes.py has them. */
export function score(links, gold) {
  const found = passages(links, gold.length);
  let all = 0,
    wanted = 0,
    both = 0,
    right = 0;
  gold.forEach((passage, k) => {
    all += found[k] >= -1;
    wanted += passage >= -1;
    if (found[k] < -1 || passage < -1) return;
    both += 1;
    right += found[k] === passage;
  });
  return {
    precision: all ? both / all : 1,
    recall: both / wanted,
    f1: (2 * both) / (all + wanted),
    right_passage: both ? right / both : null,
  };
}

/** From code points, in which offsets are counted, to places in a string; no array where they are the same. */
export function places(text) {
  let count = 0;
  let wide = false;
  for (const character of text) {
    count += 1;
    wide ||= character.length > 1;
  }
  if (!wide) return (place) => place;
  const found = new Uint32Array(count + 1);
  let k = 0,
    place = 0;
  for (const character of text) {
    found[k++] = place;
    place += character.length;
  }
  found[k] = place;
  return (index) => found[index];
}

/** The answer in parts [a, b, link or null], in code points; no character twice. */
export function parts(links, length) {
  const found = [];
  let done = 0;
  for (const link of links) {
    const start = Math.max(link.output[0], done);
    const stop = link.output[1];
    if (stop <= start) continue;
    if (start > done) found.push([done, start, null]);
    found.push([start, stop, link]);
    done = stop;
  }
  if (done < length) found.push([done, length, null]);
  return found;
}

/** A text cut where any of the spans begins or ends: [a, b, numbers of the spans over it]. */
export function pieces(spans, from, to) {
  const cuts = new Set([from, to]);
  for (const [a, b] of spans) for (const cut of [a, b]) if (cut > from && cut < to) cuts.add(cut);
  const edges = [...cuts].sort((a, b) => a - b);
  const open = spans.map((span, k) => [span, k]);
  return edges.slice(1).map((b, k) => {
    const a = edges[k];
    return [a, b, open.filter(([[x, y]]) => x <= a && b <= y).map(([, n]) => n)];
  });
}

/** A source's short name. */
export const tag = (source) => OTHER[source.kind] || `${source.kind === "pool" ? "pool " : "P"}${source.passage + 1}`;

/** A source's colour and line by its place in the list; what is no passage has none of its own. */
export function look(source, index) {
  if (!SOURCES.includes(source.kind)) return "sv-a-c sv-a-other";
  return `sv-a-c sv-a-c${index % COLORS} sv-a-l${Math.floor(index / COLORS) % LINES}`;
}

export const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

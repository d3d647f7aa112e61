/* A claim as a slide: an SVG of its own, light or dark. No DOM. */

const [WIDE, HIGH, EDGE] = [1280, 720, 64];
const [NAMES, VALUES] = [330, 250]; // widths of the columns beside the bars
const GLYPH = 0.55; // of a size, the mean width of a letter
/** @type {Record<string, Record<string, string>>} */
const THEMES = {
  light: { page: "#ffffff", ink: "#1a2230", soft: "#566070", line: "#d9dee6", bar: "#9aa5b1", first: "#0072b2" },
  dark: { page: "#10151b", ink: "#eef2f6", soft: "#a8b3c0", line: "#36414e", bar: "#6b7480", first: "#56b4e9" },
};

/** @param {string} text */
const escaped = (text) =>
  text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign] ?? "");

/** The lines of a text. @type {(text: string, wide: number, size: number) => string[]} */
function lines(text, wide, size) {
  const most = Math.floor(wide / (size * GLYPH));
  /** @type {string[]} */
  const made = [];
  for (const word of text.split(/\s+/)) {
    const last = made.at(-1);
    if (last !== undefined && last.length + word.length < most) made[made.length - 1] = `${last} ${word}`;
    else made.push(word.length > most ? `${word.slice(0, most - 1)}…` : word);
  }
  return made;
}

/** As many lines, none of them much shorter than the others. @type {typeof lines} */
function balanced(text, wide, size) {
  const count = lines(text, wide, size).length;
  let width = wide;
  while (width > size && lines(text, width - size, size).length === count) width -= size;
  return lines(text, width, size);
}

/** @type {(text: string, most: number) => string} */
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/**
 * @typedef {object} Slide What a slide shows; a bar's lengths are shares of the longest.
 * @property {string} title
 * @property {string} number
 * @property {string} sentence
 * @property {string[]} notes
 * @property {string} measure what the bars are
 * @property {string} unit what the values are
 * @property {{ name: string, place: number | null, bar: number, low: number | null, high: number | null, value: string,
 *   more: string }[]} lanes
 */

/** A slide of 16 by 9. @type {(slide: Slide, theme: "light" | "dark") => string} */
export function slideSvg({ title, number, sentence, notes, measure, unit, lanes }, theme) {
  const colors = THEMES[theme];
  /** @type {string[]} */
  const made = [];
  /** @type {(x: number, y: number, text: string, size: number, color: string, more?: string) => void} */
  const text = (x, y, text, size, color, more = "") => {
    made.push(`<text x="${x}" y="${y}" font-size="${size}" fill="${color}"${more}>${escaped(text)}</text>`);
  };
  /** @type {(x: number, y: number, wide: number, high: number, color: string) => void} */
  const box = (x, y, wide, high, color) => {
    const at = [x, y, Math.max(0, wide), high].map((value) => Number(value.toFixed(1)));
    made.push(`<rect x="${at[0]}" y="${at[1]}" width="${at[2]}" height="${at[3]}" rx="3" fill="${color}"/>`);
  };
  text(EDGE, 62, lines(title, WIDE - 2 * EDGE, 20)[0] ?? "", 20, colors.soft);
  const bold = ' font-weight="700"';
  if (number) text(EDGE, 132, number, 64, colors.first, bold);
  const roomy = lines(sentence, WIDE - 2 * EDGE, 24);
  const size = roomy.length > 3 ? 18 : 24;
  const words = balanced(sentence, WIDE - 2 * EDGE, size).slice(0, 5);
  const under = number ? 178 : 110;
  words.forEach((line, n) => text(EDGE, under + 1.35 * size * n, line, size, colors.ink));
  const top = under + 1.35 * size * words.length + 52;
  const small = notes.flatMap((note) => lines(note, WIDE - 2 * EDGE, 15));
  const step = Math.min(64, (HIGH - top - 56 - 22 * small.length) / Math.max(1, lanes.length));
  const [from, wide] = [EDGE + NAMES, WIDE - 2 * EDGE - NAMES - VALUES];
  text(from, top - 12, measure, 16, colors.soft);
  text(from + wide + 20, top - 12, unit, 16, colors.soft);
  lanes.forEach((lane, n) => {
    const y = top + step * n;
    const color = lane.place === 1 ? colors.first : colors.bar;
    text(EDGE, y + 22, lane.place === null ? "‡" : String(lane.place), 22, colors.soft);
    const said = shorten(lane.name, Math.floor((NAMES - 40) / (20 * 0.63)));
    text(EDGE + 30, y + 22, said, 20, colors.ink, lane.place === 1 ? bold : "");
    box(from, y + 4, wide * lane.bar, 24, color);
    if (lane.low !== null && lane.high !== null) {
      box(from + wide * lane.low, y + 15, wide * (lane.high - lane.low), 2, colors.ink);
      for (const end of [lane.low, lane.high]) box(from + wide * end - 1, y + 9, 2, 14, colors.ink);
    }
    text(from + wide + 20, y + 24, lane.value, 24, colors.ink, bold);
    text(WIDE - EDGE, y + 24, lane.more, 16, colors.soft, ' text-anchor="end"');
  });
  small.forEach((line, n) => text(EDGE, HIGH - 30 - 22 * (small.length - 1 - n), line, 15, colors.soft));
  box(EDGE, HIGH - 62 - 22 * (small.length - 1), WIDE - 2 * EDGE, 1, colors.line);
  const font = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
  const frame = `viewBox="0 0 ${WIDE} ${HIGH}" width="${WIDE}" height="${HIGH}"`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" ${frame} font-family="${font}"><title>${escaped(sentence)}</title>` +
    `<rect width="${WIDE}" height="${HIGH}" fill="${colors.page}"/>${made.join("")}</svg>`
  );
}

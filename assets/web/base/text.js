/* Tokens to readable text: bytes are grouped to characters and graphemes, so a split emoji shows once. */

/** @type {Record<string, string>} */
const GLYPHS = { " ": "␣", "\n": "⏎", "\t": "→", "\r": "␍" };
// controls, line separators, zero-width spaces and bidirectional overrides: never drawn raw
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;
const segmenter =
  typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter("en", { granularity: "grapheme" }) : null;

/** @type {(byte: number) => string} */
const hexByte = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");

/** @type {(character: string) => string} */
function unseen(character) {
  const code = character.charCodeAt(0);
  if (code < 0xa0) return `⟨x${hexByte(code)}⟩`;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Invisible characters made visible; spaces and line ends stay as they are. @type {(text: string) => string} */
export const safe = (text) => text.replace(UNSEEN, unseen);

/** The same with ␣ ⏎ → ␍. @type {(text: string) => string} */
export const glyphs = (text) => safe(text).replace(/[ \n\t\r]/g, (character) => GLYPHS[character]);

/** Blanks as signs, in parts between which a line may break: no word is split, and ⏎ ends its line. */
/** @type {(text: string) => string[]} */
export const glyphParts = (text) => glyphs(text).split(/(?<=[^⏎␣])(?=[⏎␣])|(?<=⏎)(?=[^⏎])/);

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

/** Safe, and never turning round what follows in its line: for options, that have no element to isolate it in. */
/** @type {(text: string) => string} */
export const inLine = (text) => (RIGHT_TO_LEFT.test(text) ? `\u2068${safe(text)}\u2069` : safe(text));

/** With a capital at its start. @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** At most so many characters, the last of them "…" where some are left out. */
/** @type {(text: string, most: number) => string} */
export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** In a narrow place: eight spaces are ␣×8. @param {string} text */
export const inNarrow = (text) => glyphs(text).replace(/␣{4,}/g, (spaces) => `␣×${spaces.length}`);

/** Between tokens: a line may break here, and in no token. */
export const BREAK = "\u200b";

/** The text of cells. @type {(cells: { text: string }[]) => string} */
export const joined = (cells) => cells.map((cell) => cell.text).join("");

/** @param {string} hex */
const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

const decoder = new TextDecoder("utf-8", { fatal: true });

/** The UTF-8 character that starts at ``at``, and its length; length 0 where there is none. */
/** @type {(bytes: Uint8Array, at: number) => { text: string, length: number }} */
function characterAt(bytes, at) {
  const lead = bytes[at];
  if (lead < 0x80) return { text: String.fromCharCode(lead), length: 1 };
  const length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  try {
    return { text: decoder.decode(bytes.subarray(at, at + length)), length };
  } catch {
    return { text: `⟨x${hexByte(lead)}⟩`, length: 0 };
  }
}

/** A character of a byte string, from byte ``start`` on. */
/** @typedef {{ text: string, start: number, valid: boolean }} Character */

/** The characters of a byte string; a byte that is none becomes ⟨xF0⟩. @type {(bytes: Uint8Array) => Character[]} */
export function characters(bytes) {
  const chars = [];
  for (let at = 0; at < bytes.length;) {
    const { text, length } = characterAt(bytes, at);
    chars.push({ text, start: at, valid: length > 0 });
    at += length || 1;
  }
  return chars;
}

/** Byte offsets at which a grapheme starts. @type {(chars: Character[]) => Set<number | undefined>} */
function graphemeStarts(chars) {
  if (!segmenter) return new Set(chars.map((one) => one.start));
  const starts = new Set();
  const offsets = new Map();
  let text = "";
  for (const c of chars) {
    offsets.set(text.length, c.start);
    text += c.valid ? c.text : "\ufffd";
  }
  for (const part of segmenter.segment(text)) starts.add(offsets.get(part.index));
  return starts;
}

/** The pieces of a trace: token id → bytes, text. */
export class Pieces {
  /** @param {Columns<PieceRow>} table */
  constructor(table) {
    /** @type {Map<number | undefined, Piece>} */
    this.known = new Map();
    /** Text → what ``inNarrow`` makes of it: tables ask for the same ones at every step. @type {Map<string, string>} */
    this.narrowed = new Map();
    this.add(table);
  }

  /** @type {(table?: Partial<Columns<PieceRow>>) => void} */
  add(table) {
    const { id = [], hex = [], special = [] } = table || {};
    id.forEach((token, row) => {
      const bytes = bytesOf(hex[row] || "");
      this.known.set(token, { bytes, special: !!special[row], text: joined(characters(bytes)) });
    });
  }

  /** A token's piece; one that says so where the trace has none. @type {(id: number | undefined) => Piece} */
  get(id) {
    return this.known.get(id) || { bytes: new Uint8Array(), special: true, text: `⟨token ${id}⟩` };
  }

  /** @type {(id: number | undefined) => boolean} */
  special(id) {
    return this.get(id).special;
  }

  /** A token's bytes, in hexadecimal. @type {(id: number | undefined) => string} */
  bytes(id) {
    return Array.from(this.get(id).bytes, hexByte).join(" ");
  }

  /** One token by itself, whitespace visible. @type {(id: number | undefined, most?: number) => string} */
  label(id, most = Infinity) {
    return cut(this.narrow(this.get(id).text), most) || "∅";
  }

  /** @param {string} text */
  narrow(text) {
    let short = this.narrowed.get(text);
    if (short === undefined) this.narrowed.set(text, (short = inNarrow(text)));
    return short;
  }

  /** The same as a word: without the space before it. @type {(id: number | undefined, most?: number) => string} */
  word(id, most = Infinity) {
    return this.label(id, most + 1).replace(/^␣(?=[^␣])/, "").slice(0, most);
  }

  /** Several tokens as one visible text, each as its label; ``between`` them, such as where a line may break. */
  /** @type {(ids: number[], most?: number, between?: string) => string} */
  phrase(ids, most = Infinity, between = "") {
    return cut(this.cells(ids).map(({ text }) => this.narrow(text)).join(between), most);
  }

  /** Tokens as cells: usually one token each; tokens that share a grapheme share a cell. */
  /** @type {(ids: (number | undefined)[], from?: number, to?: number) => Cell[]} */
  cells(ids, from = 0, to = ids.length) {
    /** @type {Cell[]} */
    const cells = [];
    for (let i = from; i < to;) {
      let j = i + 1;
      while (j < to && this.mayJoin(ids[j - 1], ids[j])) j++;
      if (j === i + 1) cells.push({ start: i, stop: j, text: this.get(ids[i]).text });
      else cells.push(...this.join(ids, i, j));
      i = j;
    }
    return cells;
  }

  /** Only a token that begins with a byte above 127 can continue a grapheme. */
  /** @type {(left: number | undefined, right: number | undefined) => boolean} */
  mayJoin(left, right) {
    const a = this.get(left);
    const b = this.get(right);
    return !a.special && !b.special && a.bytes.length > 0 && b.bytes.length > 0 && b.bytes[0] >= 0x80;
  }

  /** The cells of tokens that may share graphemes. */
  /** @type {(ids: (number | undefined)[], from: number, to: number) => Cell[]} */
  join(ids, from, to) {
    const cells = [];
    const ends = [];
    let size = 0;
    for (let i = from; i < to; i++) ends.push((size += this.get(ids[i]).bytes.length));
    const all = new Uint8Array(size);
    for (let i = from; i < to; i++) all.set(this.get(ids[i]).bytes, i > from ? ends[i - from - 1] : 0);
    const chars = characters(all);
    const starts = graphemeStarts(chars);
    let first = from;
    let next = 0;
    for (let i = from; i < to; i++) {
      const end = ends[i - from];
      if (end < size && !starts.has(end)) continue;
      let text = "";
      while (next < chars.length && chars[next].start < end) text += chars[next++].text;
      cells.push({ start: first, stop: i + 1, text });
      first = i + 1;
    }
    return cells;
  }
}

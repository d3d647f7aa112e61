/* Tokens to readable text: bytes are grouped to characters and graphemes, so a split emoji shows once. */

const GLYPHS = { " ": "␣", "\n": "⏎", "\t": "→", "\r": "␍" };
// controls, line separators, zero-width spaces and bidirectional overrides: never drawn raw
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;
const segmenter =
  typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter("en", { granularity: "grapheme" }) : null;

const hexByte = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");

function unseen(character) {
  const code = character.charCodeAt(0);
  if (code < 0xa0) return `⟨x${hexByte(code)}⟩`;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Invisible characters made visible; spaces and line ends stay as they are. */
export const safe = (text) => text.replace(UNSEEN, unseen);

/** The same with ␣ ⏎ → ␍. */
export const glyphs = (text) => safe(text).replace(/[ \n\t\r]/g, (character) => GLYPHS[character]);

/** The same in a narrow place: eight spaces are ␣×8. */
const brief = (text) => glyphs(text).replace(/␣{4,}/g, (spaces) => `␣×${spaces.length}`);

function bytesOf(hex) {
  const bytes = new Uint8Array(hex.length >> 1);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(hex.substr(2 * i, 2), 16);
  return bytes;
}

const LOWEST = [0, 0, 0x80, 0x800, 0x10000];

/** Length of the valid UTF-8 character that starts at ``at``, 0 if there is none. */
function characterLength(bytes, at) {
  const lead = bytes[at];
  if (lead < 0x80) return 1;
  const length =
    lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (!length || at + length > bytes.length) return 0;
  let code = lead & (0x7f >> length);
  for (let i = 1; i < length; i++) {
    if ((bytes[at + i] & 0xc0) !== 0x80) return 0;
    code = (code << 6) | (bytes[at + i] & 0x3f);
  }
  return code < LOWEST[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

const decoder = new TextDecoder();

/** Characters of a byte string: [{text, start, valid}]; a byte that is no character becomes ⟨xF0⟩. */
export function characters(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length;) {
    const length = characterLength(bytes, at);
    if (length === 1) found.push({ text: String.fromCharCode(bytes[at]), start: at, valid: true });
    else if (length) found.push({ text: decoder.decode(bytes.subarray(at, at + length)), start: at, valid: true });
    else found.push({ text: `⟨x${hexByte(bytes[at])}⟩`, start: at, valid: false });
    at += length || 1;
  }
  return found;
}

/** Byte offsets at which a grapheme starts. */
function graphemeStarts(chars) {
  const starts = new Set();
  if (!segmenter) {
    for (const c of chars) starts.add(c.start);
    return starts;
  }
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
  constructor(table) {
    this.known = new Map();
    this.add(table);
  }

  add(table) {
    if (!table || !table.id) return;
    table.id.forEach((id, row) => {
      const bytes = bytesOf(table.hex[row] || "");
      const text = characters(bytes)
        .map((c) => c.text)
        .join("");
      this.known.set(id, { bytes, special: !!table.special[row], text });
    });
  }

  get(id) {
    return this.known.get(id) || { bytes: new Uint8Array(), special: true, text: `⟨token ${id}⟩` };
  }

  special(id) {
    return this.get(id).special;
  }

  bytes(id) {
    return Array.from(this.get(id).bytes, hexByte).join(" ");
  }

  /** One token by itself, whitespace visible. */
  label(id, most = Infinity) {
    const text = brief(this.get(id).text);
    return text.length > most ? text.slice(0, most - 1) + "…" : text || "∅";
  }

  /** Several tokens as one visible text. */
  phrase(ids, most = Infinity) {
    const text = brief(
      this.cells(ids)
        .map((cell) => cell.text)
        .join(""),
    );
    return text.length > most ? text.slice(0, most - 1) + "…" : text;
  }

  /** Tokens as cells {start, stop, text}: usually one token each; tokens that share a grapheme share a cell. */
  cells(ids, from = 0, to = ids.length) {
    const found = [];
    for (let i = from; i < to;) {
      let j = i + 1;
      while (j < to && this.mayJoin(ids[j - 1], ids[j])) j++;
      if (j === i + 1) found.push({ start: i, stop: j, text: this.get(ids[i]).text });
      else this.join(ids, i, j, found);
      i = j;
    }
    return found;
  }

  /** Only a token that begins with a byte above 127 can continue a grapheme. */
  mayJoin(left, right) {
    const a = this.get(left);
    const b = this.get(right);
    return !a.special && !b.special && a.bytes.length > 0 && b.bytes.length > 0 && b.bytes[0] >= 0x80;
  }

  join(ids, from, to, found) {
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
      found.push({ start: first, stop: i + 1, text });
      first = i + 1;
    }
  }
}

/** Keys and labels as people can read them: control characters become visible, and a long text keeps its end. */

/** A part of a text. A control character is a part of its own, in a visible form. */
export interface TextPart {
  readonly text: string;
  readonly isControl: boolean;
}

/** Controls, and what changes the direction of text or takes no room: a reader could not see it. */
const INVISIBLE =
  /[\p{Cc}\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/u;

const INVISIBLE_PART = new RegExp(`(${INVISIBLE.source})`, "u");

const ESCAPES: Readonly<Record<string, string>> = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

/** The text as parts that join to all of it. */
export function splitVisible(text: string): readonly TextPart[] {
  if (!INVISIBLE.test(text)) return text === "" ? [] : [{ text, isControl: false }];
  return text
    .split(INVISIBLE_PART)
    .map((part, index) => ({ text: index % 2 === 1 ? nameControl(part) : part, isControl: index % 2 === 1 }))
    .filter((part) => part.text !== "");
}

/** The text with visible control characters, for titles and messages. */
export function makeVisible(text: string): string {
  return splitVisible(text)
    .map((part) => part.text)
    .join("");
}

function nameControl(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const known = ESCAPES[character];
  if (known !== undefined) return known;
  const hex = code.toString(16);
  return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : `U+${hex.toUpperCase().padStart(4, "0")}`;
}

/** A text in two parts, of which the first may be cut. */
export interface SplitText {
  readonly head: string;
  readonly tail: string;
}

/** A text of this length or less is cut at its end. */
const MIN_SPLIT = 24;
const TAIL_LENGTH = 9;

/** Characters of one code unit each. */
const PLAIN = /^[\x20-\x7e]*$/;

let segmenter: Intl.Segmenter | null = null;

/** The end of a long text, by characters as people see them: keys often differ there. */
export function splitTail(text: string): SplitText {
  if (text.length <= MIN_SPLIT) return { head: text, tail: "" };
  const tail = takeTail(text).trimStart();
  return { head: text.slice(0, text.length - tail.length), tail };
}

/** Only the end is segmented: a text may be long, and there are many. */
function takeTail(text: string): string {
  const end = text.slice(-TAIL_LENGTH * 4);
  if (PLAIN.test(end)) return end.slice(-TAIL_LENGTH);
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  const segments = [...segmenter.segment(end)].slice(-TAIL_LENGTH);
  return segments.map(({ segment }) => segment).join("");
}

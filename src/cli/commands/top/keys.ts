/** The keys of a terminal in raw mode, from the bytes that it sends. */

/** What a key means; "character": it stands for its text. */
type KeyName =
  | "character"
  | "up"
  | "down"
  | "pageUp"
  | "pageDown"
  | "home"
  | "end"
  | "enter"
  | "escape"
  | "backspace"
  | "clearLine"
  | "interrupt"
  | "suspend"
  | "redraw"
  | "unknown";

/** A key that was pressed. */
export interface Key {
  readonly name: KeyName;
  readonly text: string;
}

const ESCAPE = "\u001b";

/** With the cursor keys in both of their modes. */
const NAMES: ReadonlyMap<string, KeyName> = new Map([
  ...(["[", "O"] as const).flatMap((introducer): [string, KeyName][] => [
    [`${ESCAPE}${introducer}A`, "up"],
    [`${ESCAPE}${introducer}B`, "down"],
    [`${ESCAPE}${introducer}H`, "home"],
    [`${ESCAPE}${introducer}F`, "end"],
  ]),
  [`${ESCAPE}[1~`, "home"],
  [`${ESCAPE}[7~`, "home"],
  [`${ESCAPE}[4~`, "end"],
  [`${ESCAPE}[8~`, "end"],
  [`${ESCAPE}[5~`, "pageUp"],
  [`${ESCAPE}[6~`, "pageDown"],
  [ESCAPE, "escape"],
  ["\r", "enter"],
  ["\n", "enter"],
  ["\u007f", "backspace"],
  ["\b", "backspace"],
  ["\u0015", "clearLine"],
  ["\u0003", "interrupt"],
  ["\u001a", "suspend"],
  ["\u000c", "redraw"],
]);

const INPUT = new RegExp(`${ESCAPE}(?:\\[[0-9;?]*[ -/]*[@-~]|O[@-~])|[\\s\\S]`, "gu");
/** An escape sequence whose rest may follow with the next bytes. */
const UNFINISHED = new RegExp(`${ESCAPE}(?:\\[[0-9;?]*[ -/]*|O)?$`, "u");

/** Splits input into keys. A sequence may arrive in several parts, so one at the end is kept until it is complete. */
export class KeyDecoder {
  #rest = "";

  /** True: the input ended with what may be the Escape key or the beginning of a sequence. */
  get isUnfinished(): boolean {
    return this.#rest !== "";
  }

  push(input: string): Key[] {
    const text = this.#rest + input;
    const start = UNFINISHED.exec(text)?.index ?? text.length;
    this.#rest = text.slice(start);
    return decodeKeys(text.slice(0, start));
  }

  /** Nothing followed: the Escape key was pressed. */
  flush(): Key[] {
    const text = this.#rest;
    this.#rest = "";
    return decodeKeys(text);
  }
}

function decodeKeys(text: string): Key[] {
  return Array.from(text.matchAll(INPUT), ([part]) => ({ name: nameOf(part), text: part }));
}

function nameOf(part: string): KeyName {
  return NAMES.get(part) ?? (/^\P{Cc}$/u.test(part) ? "character" : "unknown");
}

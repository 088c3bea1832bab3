/**
 * A JSON parser for untrusted input: rejects duplicate names, `__proto__`, deep nesting, and numbers that would become
 * Infinity; objects become Maps. Takes time linear in the length of the text.
 */

/** Invalid or ambiguous JSON. `field`: the affected member, if there is one. */
export class JsonError extends Error {
  readonly field: string | null;
  constructor(message: string, field: string | null = null) {
    super(message);
    this.name = "JsonError";
    this.field = field;
  }
}

/** A JSON value with its objects as Maps. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | ReadonlyMap<string, JsonValue>;

/** @throws JsonError */
export function parseJsonToMaps(text: string, depth: number): JsonValue {
  const parser = new JsonParser(text, depth);
  const value = parser.parseValue("");
  parser.expectEnd();
  return value;
}

/**
 * Like JSON.parse, for files that an operator has written and for bodies of requests. JSON.parse silently uses the last of
 * two members with one name, which could hide a permission, and its error message quotes the text, which may contain a
 * credential.
 * @throws JsonError
 */
export function parseStrictJson(text: string, depth: number = MAX_FILE_DEPTH): unknown {
  parseJsonToMaps(text, depth);
  return JSON.parse(text);
}

/** The most levels of objects and arrays in a file. */
const MAX_FILE_DEPTH = 16;

const LITERALS: Readonly<Record<string, readonly [text: string, value: null | boolean]>> = {
  n: ["null", null],
  t: ["true", true],
  f: ["false", false],
};

class JsonParser {
  readonly #text: string;
  #position = 0;
  #remainingDepth: number;

  constructor(text: string, depth: number) {
    this.#text = text;
    this.#remainingDepth = depth;
  }

  /** `path` names the value in messages. */
  parseValue(path: string): JsonValue {
    const char = this.#peekChar();
    if (char === "{") return this.#parseNested(path, () => this.#parseObject(path));
    if (char === "[") return this.#parseNested(path, () => this.#parseArray(path));
    if (char === '"') return this.#parseString();
    const literal = LITERALS[char];
    if (literal !== undefined && this.#text.startsWith(literal[0], this.#position)) {
      this.#position += literal[0].length;
      return literal[1];
    }
    return this.#parseNumber(path);
  }

  expectEnd(): void {
    if (this.#peekChar() !== "") throw this.#syntaxError();
  }

  #parseNested<T>(path: string, read: () => T): T {
    if (this.#remainingDepth === 0) throw new JsonError("is nested too deeply", path.split(/[.[]/)[0] || null);
    this.#remainingDepth--;
    this.#position++;
    const value = read();
    this.#remainingDepth++;
    return value;
  }

  #parseObject(path: string): ReadonlyMap<string, JsonValue> {
    const members = new Map<string, JsonValue>();
    if (this.#consume("}")) return members;
    for (;;) {
      if (this.#peekChar() !== '"') throw this.#syntaxError();
      const name = this.#parseString();
      const field = truncatePath(path === "" ? name : `${path}.${name}`);
      if (name === "__proto__") throw new JsonError("must not be a member", field);
      if (members.has(name)) throw new JsonError("appears twice", field);
      if (!this.#consume(":")) throw this.#syntaxError();
      members.set(name, this.parseValue(field));
      if (this.#consume("}")) return members;
      if (!this.#consume(",")) throw this.#syntaxError();
    }
  }

  #parseArray(path: string): readonly JsonValue[] {
    const items: JsonValue[] = [];
    if (this.#consume("]")) return items;
    for (;;) {
      items.push(this.parseValue(truncatePath(`${path}[${items.length}]`)));
      if (this.#consume("]")) return items;
      if (!this.#consume(",")) throw this.#syntaxError();
    }
  }

  #parseString(): string {
    const start = this.#position++;
    for (let char = this.#nextChar(); char !== '"'; char = this.#nextChar()) {
      if (char === "") throw this.#syntaxError();
      if (char === "\\") this.#position++;
    }
    return this.#parseSlice(start) as string;
  }

  #parseNumber(path: string): number {
    const start = this.#position;
    while (this.#position < this.#text.length && "+-.0123456789eE".includes(this.#text[this.#position] as string))
      this.#position++;
    if (this.#position === start) throw this.#syntaxError();
    const number = this.#parseSlice(start) as number;
    if (!Number.isFinite(number)) throw new JsonError("is a number that is too large", path === "" ? null : path);
    return number;
  }

  /** Parses the text from `start` to the current position with JSON.parse. */
  #parseSlice(start: number): unknown {
    try {
      return JSON.parse(this.#text.slice(start, this.#position));
    } catch {
      this.#position = start;
      throw this.#syntaxError();
    }
  }

  /** Returns the current character and moves on; "" at the end. */
  #nextChar(): string {
    return this.#text[this.#position++] ?? "";
  }

  /** Skips white space and returns the next character without consuming it; "" at the end. */
  #peekChar(): string {
    for (;;) {
      const char = this.#text[this.#position] ?? "";
      if (char !== " " && char !== "\n" && char !== "\r" && char !== "\t") return char;
      this.#position++;
    }
  }

  #consume(char: string): boolean {
    if (this.#peekChar() !== char) return false;
    this.#position++;
    return true;
  }

  #syntaxError(): JsonError {
    return new JsonError(`is not valid JSON at character ${this.#position + 1}`);
  }
}

/** Shortens a path for messages and replaces unprintable characters. */
function truncatePath(path: string): string {
  const printable = path.replace(/[^\x20-\x7e]/g, "?");
  return printable.length > 64 ? `${printable.slice(0, 64)}...` : printable;
}

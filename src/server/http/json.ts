/**
 * JSON as a stranger sends it: duplicate names, `__proto__` and deep nesting are refused, objects become Maps, and no
 * number that a double cannot hold gets by as Infinity. Time is linear in the length of the text.
 */

/** Not JSON, or JSON that could mean two things. `field`: the member concerned, where there is one. */
export class JsonError extends Error {
  readonly field: string | null;
  constructor(message: string, field: string | null = null) {
    super(message);
    this.name = "JsonError";
    this.field = field;
  }
}

/** A JSON value with its objects as Maps. */
export type Json = null | boolean | number | string | readonly Json[] | ReadonlyMap<string, Json>;

/** @throws JsonError */
export function readJson(text: string, depth: number): Json {
  const reader = new Reader(text, depth);
  const value = reader.value("");
  reader.end();
  return value;
}

/**
 * As JSON.parse, for a file that an operator has written. Of two members of one name that takes the last, and a right could
 * go unseen; and its message repeats what stands there, which may be a credential.
 * @throws JsonError
 */
export function parseStrictly(text: string): unknown {
  readJson(text, OPERATORS_DEPTH);
  return JSON.parse(text);
}

/** Levels of objects and lists. */
const OPERATORS_DEPTH = 16;

const LITERALS: Readonly<Record<string, readonly [text: string, value: null | boolean]>> = {
  n: ["null", null],
  t: ["true", true],
  f: ["false", false],
};

class Reader {
  readonly #text: string;
  #at = 0;
  #left: number;

  constructor(text: string, depth: number) {
    this.#text = text;
    this.#left = depth;
  }

  /** `path` names the value for people. */
  value(path: string): Json {
    const char = this.#peek();
    if (char === "{") return this.#nested(path, () => this.#object(path));
    if (char === "[") return this.#nested(path, () => this.#array(path));
    if (char === '"') return this.#string();
    const literal = LITERALS[char];
    if (literal !== undefined && this.#text.startsWith(literal[0], this.#at)) {
      this.#at += literal[0].length;
      return literal[1];
    }
    return this.#number(path);
  }

  end(): void {
    if (this.#peek() !== "") throw this.#wrong();
  }

  #nested<T>(path: string, read: () => T): T {
    if (this.#left === 0) throw new JsonError("is nested too deeply", path.split(/[.[]/)[0] || null);
    this.#left--;
    this.#at++;
    const value = read();
    this.#left++;
    return value;
  }

  #object(path: string): ReadonlyMap<string, Json> {
    const members = new Map<string, Json>();
    if (this.#taken("}")) return members;
    for (;;) {
      if (this.#peek() !== '"') throw this.#wrong();
      const name = this.#string();
      const field = shortened(path === "" ? name : `${path}.${name}`);
      if (name === "__proto__") throw new JsonError("must not be a member", field);
      if (members.has(name)) throw new JsonError("stands there twice", field);
      if (!this.#taken(":")) throw this.#wrong();
      members.set(name, this.value(field));
      if (this.#taken("}")) return members;
      if (!this.#taken(",")) throw this.#wrong();
    }
  }

  #array(path: string): readonly Json[] {
    const items: Json[] = [];
    if (this.#taken("]")) return items;
    for (;;) {
      items.push(this.value(shortened(`${path}[${items.length}]`)));
      if (this.#taken("]")) return items;
      if (!this.#taken(",")) throw this.#wrong();
    }
  }

  #string(): string {
    const start = this.#at++;
    for (let char = this.#next(); char !== '"'; char = this.#next()) {
      if (char === "") throw this.#wrong();
      if (char === "\\") this.#at++;
    }
    return this.#parsed(start) as string;
  }

  #number(path: string): number {
    const start = this.#at;
    while (this.#at < this.#text.length && "+-.0123456789eE".includes(this.#text[this.#at] as string)) this.#at++;
    if (this.#at === start) throw this.#wrong();
    const number = this.#parsed(start) as number;
    if (!Number.isFinite(number)) throw new JsonError("is a number that is too large", path === "" ? null : path);
    return number;
  }

  /** What stands from `start` to here, by the rules of the real parser. */
  #parsed(start: number): unknown {
    try {
      return JSON.parse(this.#text.slice(start, this.#at));
    } catch {
      this.#at = start;
      throw this.#wrong();
    }
  }

  /** The character here, and on to the next; "" at the end. */
  #next(): string {
    return this.#text[this.#at++] ?? "";
  }

  /** The next character that is no white space; "" at the end. */
  #peek(): string {
    for (;;) {
      const char = this.#text[this.#at] ?? "";
      if (char !== " " && char !== "\n" && char !== "\r" && char !== "\t") return char;
      this.#at++;
    }
  }

  #taken(char: string): boolean {
    if (this.#peek() !== char) return false;
    this.#at++;
    return true;
  }

  #wrong(): JsonError {
    return new JsonError(`is no JSON at character ${this.#at + 1}`);
  }
}

/** A name is shown, never echoed at length. */
function shortened(path: string): string {
  const plain = path.replace(/[^\x20-\x7e]/g, "?");
  return plain.length > 64 ? `${plain.slice(0, 64)}...` : plain;
}

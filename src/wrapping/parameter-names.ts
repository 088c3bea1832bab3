/**
 * The names of a function's parameters, from its source text. The text is read, never evaluated; where it cannot be read with
 * certainty (a template literal or a regular expression in a default value), the remaining names are unknown.
 */

/** What the source text of a function says about its parameters. */
export interface Parameters {
  /** By position. null: a pattern such as `{ id }`, which has no name of its own. */
  readonly names: readonly (string | null)[];
  /** There may be further parameters: after a rest parameter, in `arguments`, and where the text could not be read. */
  readonly mayHaveMore: boolean;
}

const UNREADABLE: Parameters = { names: [], mayHaveMore: true };
const IDENTIFIER = "[\\p{ID_Start}$_][\\p{ID_Continue}$\\u200c\\u200d]*";
const ARROW_WITHOUT_PARENTHESES = new RegExp(`^(?:async\\s+)?(${IDENTIFIER})\\s*=>`, "u");
const NAME = new RegExp(`^(${IDENTIFIER})\\s*(?:=|$)`, "u");
const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

export function readParameters(fn: (...args: never[]) => unknown): Parameters {
  const source = Function.prototype.toString.call(fn);
  // functions of the engine, bound ones included
  if (/\{\s*\[native code\]\s*\}$/.test(source)) return UNREADABLE;
  const arrow = ARROW_WITHOUT_PARENTHESES.exec(source);
  if (arrow !== null) return { names: [arrow[1] as string], mayHaveMore: false };
  const start = findParenthesis(source);
  if (start === null) return UNREADABLE;
  const parameters = readList(source, start + 1);
  // compilers that lower async functions leave some parameters to it
  return { ...parameters, mayHaveMore: parameters.mayHaveMore || /\barguments\b/.test(source) };
}

/** The parenthesis that begins the parameters, behind a name that may be computed or quoted. */
function findParenthesis(source: string): number | null {
  for (let at = 0; at < source.length; ) {
    if (source[at] === "(") return at;
    const next = skipToken(source, at);
    if (next === null) return null;
    at = next;
  }
  return null;
}

function readList(source: string, start: number): Parameters {
  const names: (string | null)[] = [];
  let text = "";
  for (let at = start; at < source.length; ) {
    const character = source[at] as string;
    if (character === "," || character === ")") {
      const parameter = text.trim();
      if (parameter.startsWith("...")) return { names, mayHaveMore: true };
      if (parameter !== "") names.push(NAME.exec(parameter)?.[1] ?? null);
      if (character === ")") return { names, mayHaveMore: false };
      text = "";
      at++;
      continue;
    }
    const next = skipToken(source, at);
    if (next === null) return { names, mayHaveMore: true };
    // a comment is no part of a name
    text += source.startsWith("/", at) ? " " : source.slice(at, next);
    at = next;
  }
  return { names, mayHaveMore: true };
}

/** The position behind a comment, a string, a pair of brackets or one other character; null: unreadable. */
function skipToken(source: string, at: number): number | null {
  const character = source[at] as string;
  if (source.startsWith("//", at)) return skipTo(source, "\n", at + 2);
  if (source.startsWith("/*", at)) return skipTo(source, "*/", at + 2);
  if (character === "'" || character === '"') return skipString(source, at);
  // the end of a regular expression or of a template literal depends on what it contains
  if (character === "/" || character === "`") return null;
  const closing = CLOSING[character];
  return closing === undefined ? at + 1 : skipBrackets(source, closing, at + 1);
}

function skipBrackets(source: string, closing: string, start: number): number | null {
  for (let at = start; at < source.length; ) {
    if (source[at] === closing) return at + 1;
    const next = skipToken(source, at);
    if (next === null) return null;
    at = next;
  }
  return null;
}

function skipString(source: string, start: number): number | null {
  const quote = source[start] as string;
  for (let at = start + 1; at < source.length; at++) {
    if (source[at] === "\\") at++;
    else if (source[at] === quote) return at + 1;
  }
  return null;
}

function skipTo(source: string, end: string, from: number): number | null {
  const at = source.indexOf(end, from);
  return at < 0 ? null : at + end.length;
}

/** Paths of nodes, validated before any request is sent, and the chroot of a client. */

import { describeValue } from "../../../util/duration.ts";

// characters that the server refuses, and line separators, which could forge a line in a log
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const FORBIDDEN = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\uf8ff\ufff0-\uffff]/;
// characters outside the basic plane are surrogate pairs; FORBIDDEN refuses only unpaired surrogates
const SURROGATE_PAIRS = /[\ud800-\udbff][\udc00-\udfff]/g;

/** @throws TypeError naming what is wrong */
export function validatePath(path: unknown, name = "path"): string {
  if (typeof path !== "string") throw new TypeError(`${name} must be a string, not ${describeValue(path)}`);
  const problem = findPathProblem(path);
  if (problem !== null) throw new TypeError(`${name} ${problem}: ${describeValue(path)}`);
  return path;
}

/** Is this a valid path of a node? */
export function isPath(path: string): boolean {
  return findPathProblem(path) === null;
}

function findPathProblem(path: string): string | null {
  if (!path.startsWith("/")) return "must begin with a slash";
  if (path === "/") return null;
  if (path.endsWith("/")) return "must not end with a slash";
  if (FORBIDDEN.test(path.replace(SURROGATE_PAIRS, "")))
    return "must not have control characters, surrogates or private characters";
  for (const segment of path.slice(1).split("/")) {
    if (segment === "") return "must not have an empty part";
    if (segment === "." || segment === "..") return "must not have . or .. as a part";
  }
  return path === "/zookeeper" || path.startsWith("/zookeeper/") ? "must not be the server's own" : null;
}

/** Translates paths of a client whose root is `chroot` ("" for none). */
export class Chroot {
  readonly #prefix: string;

  constructor(chroot: string) {
    this.#prefix = chroot === "/" ? "" : chroot === "" ? "" : validatePath(chroot, "chroot");
  }

  toFullPath(path: string): string {
    validatePath(path);
    if (this.#prefix === "") return path;
    return path === "/" ? this.#prefix : this.#prefix + path;
  }

  toRelativePath(path: string): string {
    if (this.#prefix === "" || !path.startsWith(this.#prefix)) return path;
    return path.slice(this.#prefix.length) || "/";
  }
}

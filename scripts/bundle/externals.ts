// What the files of the package import, and do not contain: Node's own modules, and what users install beside it.

import { readFileSync } from "node:fs";
import { isBuiltin } from "node:module";

const { peerDependencies } = JSON.parse(readFileSync("package.json", "utf8")) as {
  readonly peerDependencies: Readonly<Record<string, string>>;
};

export function isExternal(id: string): boolean {
  return isBuiltin(id) || peerDependencies[id] !== undefined;
}

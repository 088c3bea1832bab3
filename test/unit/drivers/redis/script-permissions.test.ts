/** All commands of a script are checked before any script runs: a refusal half-way would leave its writes, as Redis undoes nothing. */

import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { isTextFile, readText } from "../../../../scripts/text-modules.ts";
import { CLUSTER_PERMISSIONS, LEAST_PERMISSIONS } from "../../../support/stores/redis-permissions.ts";

const SCRIPTS = "src/drivers/redis/lua";

const listCommands = (text: string): string[] =>
  [...text.matchAll(/(?:call|try|tryCommand|writeFields)\([^'\n]*'([A-Z]+)'/g)].map(([, name]) => name as string);

test("every command of a script is tried when a driver opens, and is among the documented rights", () => {
  const names = readdirSync(SCRIPTS).filter((name) => isTextFile(name) && name !== "verify.lua");
  const usedCommands = new Set([...listCommands(readText(`${SCRIPTS}/verify.lua`)), "PUBLISH", "SPUBLISH"]); // which of both is up to the channel
  const used = new Set(names.flatMap((name) => listCommands(readText(`${SCRIPTS}/${name}`))));
  expect(used.size).toBeGreaterThan(14);
  // needed by an option, and reported by its own error
  expect([...used].filter((name) => !usedCommands.has(name))).toEqual(["INFO"]);
  const rights = [...LEAST_PERMISSIONS, ...CLUSTER_PERMISSIONS];
  expect([...used].filter((name) => !rights.includes(`+${name.toLowerCase()}`))).toEqual([]);
});

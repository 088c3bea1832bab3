/** All commands of a script are checked before any script runs: a refusal half-way would leave its writes, as Redis undoes nothing. */

import { expect, test } from "vitest";
import * as scripts from "../../../../src/drivers/redis/scripts.ts";
import { CLUSTER_PERMISSIONS, LEAST_PERMISSIONS } from "../../../support/stores/redis-permissions.ts";

const listCommands = (text: string): string[] =>
  [...text.matchAll(/(?:call|try|tryCommand|writeFields)\([^'\n]*'([A-Z]+)'/g)].map(([, name]) => name as string);

test("every command of a script is tried when a driver opens, and is among the documented rights", () => {
  const { VERIFY, ...others } = scripts;
  const usedCommands = new Set([...listCommands(VERIFY.text), "PUBLISH", "SPUBLISH"]); // which of both is up to the channel
  const used = new Set(Object.values(others).flatMap(({ text }) => listCommands(text)));
  expect(used.size).toBeGreaterThan(14);
  // needed by an option, and reported by its own error
  expect([...used].filter((name) => !usedCommands.has(name))).toEqual(["INFO"]);
  const rights = [...LEAST_PERMISSIONS, ...CLUSTER_PERMISSIONS];
  expect([...used].filter((name) => !rights.includes(`+${name.toLowerCase()}`))).toEqual([]);
});

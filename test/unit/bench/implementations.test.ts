// The bench starts its servers by name: a renamed file is found only by running a case.

import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { IMPLEMENTATIONS } from "../../../bench/implementations/implementations.ts";

test("the server of every implementation exists", () => {
  const servers = Object.values(IMPLEMENTATIONS).flatMap(({ server }) => (server === undefined ? [] : [server]));
  expect(servers.filter((server) => !existsSync(`bench/servers/${server}.child.ts`))).toEqual([]);
});

import { expect, test } from "vitest";
import { exponential } from "../../src/drivers/zookeeper/client/retry.ts";
import { Servers } from "../../src/drivers/zookeeper/client/servers.ts";

/** How long an attempt may take with so many servers and such a session. */
function attempt(count: number, sessionMs: number): number {
  const all = Array.from({ length: count }, (_, at) => ({ host: "zk", port: at + 1 }));
  const servers = new Servers(all, () => 0.5, exponential(20, 1_000));
  servers.next(100, sessionMs);
  return servers.dueAt - 100;
}

test("a server that takes a connection and says nothing is left while there is time to ask again", () => {
  expect(attempt(1, 30_000)).toBe(5_000);
  expect(attempt(3, 24_000)).toBe(4_000);
  expect(attempt(1, 4_000)).toBe(2_000);
  expect(attempt(3, 7_500), "two seconds, if there is time for all").toBe(2_000);
  expect(attempt(3, 1_500), "what the session leaves to each").toBe(500);
});

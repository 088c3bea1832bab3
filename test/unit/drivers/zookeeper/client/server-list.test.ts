import { expect, test } from "vitest";
import { exponential, ServerList } from "../../../../../src/drivers/zookeeper/client/server-list.ts";

/** The time limit of one attempt, for this number of servers and this session. */
function attemptConnect(count: number, sessionMs: number): number {
  const servers = Array.from({ length: count }, (_, index) => ({ host: "zk", port: index + 1 }));
  const serverList = new ServerList(servers, () => 0.5, exponential(20, 1_000));
  serverList.next(100, sessionMs);
  return serverList.dueAt - 100;
}

test("a server that accepts a connection and stays silent is left while there is time to try another", () => {
  expect(attemptConnect(1, 30_000)).toBe(5_000);
  expect(attemptConnect(3, 24_000)).toBe(4_000);
  expect(attemptConnect(1, 4_000)).toBe(2_000);
  expect(attemptConnect(3, 7_500), "two seconds, if there is time for all").toBe(2_000);
  expect(attemptConnect(3, 1_500), "what the session leaves to each").toBe(500);
});

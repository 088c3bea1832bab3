// A server with a small heap, and clients that try to fill it: a refused claim uses no memory.

import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";

const sandbox = cliSandbox();

/** Heap of the server in MiB, and claims that would fill it several times. */
const HEAP_MIB = process.env.HOLDFAST_LONG === "1" ? 400 : 64;
const CLAIM_COUNT = HEAP_MIB * 2_000;

test(`reclaims after a restart do not exhaust a server with ${HEAP_MIB} MiB: ${CLAIM_COUNT} claims, and some of very long keys`, async () => {
  const server = sandbox.start(["serve", "--listen", "holdfast://127.0.0.1:0", "--state", "none", "--quiet"], {
    env: { NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}` },
  });
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
  const address = parseRawAddress(server.out().trim().replace("listening on ", ""));
  const otherRawClient = await RawClient.open(address);
  const states = { held: 0, waiting: 0, none: 0 };
  const sendItems = async (client: RawClient, items: readonly unknown[]): Promise<void> => {
    for (const [state] of (await client.call("reclaim", items, false)) as [keyof typeof states][]) states[state]++;
  };
  const held = ["held", "5", 1, 30_000];
  // each session has as many as it may have at least; over TCP its claims outlive its connection
  for (let claimCount = 0, session = 0; claimCount < CLAIM_COUNT; session++) {
    const client = await RawClient.open(address);
    for (let frame = 0; frame < 25 && claimCount < CLAIM_COUNT; frame++) {
      const key = (n: number): unknown => (session % 2 === 0 ? `${session}/${frame}/${n}` : ["one key", 1, 1_000_000]);
      const state = frame % 2 === 0 ? held : ["waiting", 1];
      await sendItems(
        client,
        Array.from({ length: 1_000 }, (_, n) => [[randomId(), [key(n)], 30_000], state]),
      );
      claimCount += 1_000;
    }
    for (let claim = 0; claim < 20; claim++) {
      const keys = Array.from({ length: 128 }, (_, n) =>
        `${String(n).padStart(3, "0")}/${session}/${claim}/`.padEnd(500, "x"),
      );
      await sendItems(client, [[[randomId(), keys, 30_000], held]]);
    }
    expect(await otherRawClient.call("ping")).toEqual([]);
    client.end();
  }
  expect(Math.min(...Object.values(states))).toBeGreaterThan(0);
  expect(server.process.exitCode).toBe(null);
  otherRawClient.end();
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
}, 120_000);

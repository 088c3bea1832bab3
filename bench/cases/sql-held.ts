/** What held claims cost: connections, memory, and statements that renew them. */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { BenchStore } from "../harness/bench-store.ts";
import type { MemoryInUse } from "../harness/child-rpc.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { CLIENT_PROGRAM } from "../harness/rounds.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { MARIADB_KIND, POSTGRES_KIND } from "../harness/sql-rounds.ts";
import { computeSpread } from "../harness/stats.ts";
import type { HoldRequest } from "../harness/window-handlers.ts";

const COUNTS = IS_QUICK_RUN ? [100, 1_000] : [1_000, 10_000];
/** Keys of one process are none of the next one's: an ended process leaves its claims behind. */
const KEY_RANGE = 100_000;
const TTL_MS = 30_000;
/** Claims that are sent at once: more would wait for a connection for longer than a call may take. */
const BATCH = 100;

export const sqlHeld: readonly BenchCase[] = [POSTGRES_KIND, MARIADB_KIND].map(createCase);

function createCase({ id, title, names, withStore }: SqlKind): BenchCase {
  return {
    name: `sql-held-${id}`,
    title: `${title}, many held locks of one process`,
    about:
      `Taken ${BATCH} at a time, with a lease of ${TTL_MS / 1_000} s, and then kept. Memory is that of the client's process after a full collection, ` +
      "less what it was with one lock.",
    run: () =>
      withStore(async (store) => {
        const rows: Row[] = [];
        const checks: Check[] = [];
        for (const [index, count] of COUNTS.entries()) {
          const { seconds, bytes, connections } = await measureHeld(store, names.holdfast, index * KEY_RANGE, count);
          rows.push({
            name: `${names.holdfast}, ${count.toLocaleString("en-US")} held`,
            figures: {
              "claims/s": computeSpread([count / seconds]),
              connections: computeSpread([connections]),
              "client bytes a lock": computeSpread([bytes]),
            },
          });
          // a pool of 4, and one that listens
          checks.push(check("gate", `${count} held: connections`, computeSpread([connections]), "at most", 5));
        }
        return { rows, checks };
      }),
  };
}

async function measureHeld(
  store: BenchStore,
  name: string,
  from: number,
  count: number,
): Promise<{ readonly seconds: number; readonly bytes: number; readonly connections: number }> {
  const client = new ChildProcessRpc(CLIENT_PROGRAM, [name, store.address], ["--expose-gc"]);
  try {
    const request = { count, from, ttl: TTL_MS, batch: BATCH } satisfies HoldRequest;
    // each of these calls has a client with connections of its own
    await client.call("keep", { ...request, count: 1, from: from + count } satisfies HoldRequest);
    const connectionsBefore = client.countConnections();
    const before = await client.call<MemoryInUse>("memory");
    const startedAt = performance.now();
    await client.call("keep", request);
    const seconds = (performance.now() - startedAt) / 1_000;
    const after = await client.call<MemoryInUse>("memory");
    const connections = client.countConnections() - connectionsBefore;
    return { seconds, bytes: (after.heap - before.heap) / count, connections };
  } finally {
    await client.end();
  }
}

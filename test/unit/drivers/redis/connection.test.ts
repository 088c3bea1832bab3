/** Opening a connection with a client library that gives up. */

import { expect, test } from "vitest";
import type { ClientAdapter } from "../../../../src/drivers/redis/clients/types.ts";
import { Connection } from "../../../../src/drivers/redis/connection.ts";

const nothing = (): void => undefined;
const EVENTS = { onPush: nothing, onMissed: nothing, onDisconnected: nothing };
const TIMEOUT_MS = 10_000;

test("a client that gives up after it was asked to connect again is started once more", async () => {
  let attempts = 0;
  let isReady = false;
  let stop = nothing;
  const adapter = {
    get isReady() {
      return isReady;
    },
    address: { label: "", isTls: false, isViaSentinel: true },
    async connect() {
      attempts++;
      if (attempts === 1) throw new Error("All sentinels are unreachable and retry is disabled.");
      // ioredis, while it still waits for an attempt of its own, does nothing when it is asked; then that attempt fails
      if (attempts === 2) setImmediate(() => stop());
      else isReady = true;
    },
    takeOwnership(onStopped: () => void) {
      stop = onStopped;
    },
    watchConnection: () => nothing,
    watchErrors: () => nothing,
    disconnect: nothing,
  } as unknown as ClientAdapter;
  const connection = new Connection(adapter, true, {}, EVENTS);
  await connection.connectAndDo(TIMEOUT_MS, async () => undefined);
  expect(attempts).toBe(3);
  connection.close();
});

/** Ready at once. */
function createReadyAdapter(isCluster: boolean): ClientAdapter {
  return {
    ...{ isReady: true, isCluster, address: { label: "", isTls: false, isViaSentinel: false } },
    ...{ takeOwnership: nothing, watchConnection: () => nothing, disconnect: nothing },
  } as unknown as ClientAdapter;
}

test.each([
  [true, "is tried again: its client learns the new master soon", 2],
  [false, "ends the attempt: the URL is that of a single server", 1],
])("in a Cluster: %s; MOVED while the driver opens %s", async (isCluster, _, expected) => {
  const connection = new Connection(createReadyAdapter(isCluster), true, {}, EVENTS);
  let calls = 0;
  const opening = connection.connectAndDo(TIMEOUT_MS, async () => {
    calls++;
    if (calls === 1) throw new Error("MOVED 1 127.0.0.1:7000");
  });
  if (isCluster) await opening;
  else await expect(opening).rejects.toThrow("MOVED");
  expect(calls).toBe(expected);
  connection.close();
});

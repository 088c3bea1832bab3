/** One of the processes that write to a store at the same moment (test/support/stores/write-race.ts): it does as it is told. */

import { createStore } from "../stores/document-stores.ts";
import type { WriteOrder, WriteReport } from "../stores/write-race.ts";

const BOUND_MS = 60_000;

const store = createStore(JSON.parse(process.argv[2] as string));
const report = (line: WriteReport): void => void process.send?.(line);

// before anything else: it keeps the process alive, which connections of the store do not
process.on("message", (order: WriteOrder) => void obey(order));
await store.open?.(AbortSignal.timeout(BOUND_MS));
process.on("disconnect", () => void store.close?.());
report({ lane: -1, result: "conflict" });

async function obey({ lane, name, version, length }: WriteOrder): Promise<void> {
  const bytes = new Uint8Array(length).fill(7);
  // as documents, the same never come twice
  crypto.getRandomValues(bytes.subarray(0, 16));
  try {
    report({ lane, result: await store.write(name, bytes, version, AbortSignal.timeout(BOUND_MS)) });
  } catch (error) {
    report({ lane, result: { error: String(error) } });
  }
}

// Many processes lock and unlock one lock as fast as they can. Under the lock each appends its token to one file, so the
// order of the lines is the order of the grants: tokens that repeat or fall would be seen, and so would two holders.

import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Prints how long it took, and what the tokens say. */
export async function runLockLoop(
  url: string,
  { processes, times, grants }: { readonly processes: number; readonly times: number; readonly grants: string },
): Promise<void> {
  const program = fileURLToPath(new URL("lock-loop.child.js", import.meta.url));
  const clients = Array.from({ length: processes }, () => fork(program, [url, String(times), grants]));
  await Promise.all(clients.map((client) => once(client, "message"))); // each has connected
  const startedAt = performance.now();
  const results = clients.map((client) => once(client, "message"));
  for (const client of clients) client.send("go");
  await Promise.all(results);
  const ms = performance.now() - startedAt;

  const tokens = readFileSync(grants, "utf8").trimEnd().split("\n").map(BigInt);
  const isRising = tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint));
  const rate = Math.round(tokens.length / (ms / 1_000));
  console.log(`${processes} processes, ${times} times each: ${ms.toFixed(0)} ms (${rate} pairs/s)`);
  console.log(`${tokens.length} grants, ${new Set(tokens).size} different tokens, always rising: ${isRising}`);
}

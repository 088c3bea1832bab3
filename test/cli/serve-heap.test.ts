// A server with a small heap, and clients that want to fill it: what is refused costs nothing.

import { join } from "node:path";
import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { RawClient } from "../support/raw-client.ts";
import { until } from "../support/wait-for.ts";
import { place } from "./command.ts";

const here = place();

/** Heap of the server in MiB, and claims that would fill it several times. */
const HEAP = process.env.HOLDFAST_LONG === "1" ? 400 : 64;
const CLAIMS = HEAP * 2_500;

test(`${CLAIMS} claims that a client tells of after a restart do not end a server with ${HEAP} MiB`, async () => {
  const path = join(here.folder, "heap");
  const server = here.start(["serve", "--listen", `unix:${path}`, "--state", "none", "--quiet"], {
    env: { NODE_OPTIONS: `--max-old-space-size=${HEAP}` },
  });
  await until(() => server.out().includes("listening"), { within: 20_000, what: "the server" });
  const other = await RawClient.open({ path });
  let told = 0;
  const answers: Record<string, number> = { held: 0, waiting: 0, none: 0 };
  // one session after the other: each has its own bound, and all together have one
  for (let session = 0; told < CLAIMS; session++) {
    const client = await RawClient.open({ path });
    for (let frame = 0; frame < 25 && told < CLAIMS; frame++) {
      const items = Array.from({ length: 1_000 }, (_, n) => [
        [newId(), [[session % 2 === 0 ? `${session}/${frame}/${n}` : "one key", 1, 1_000_000]], 30_000],
        frame % 2 === 0 ? ["held", "5", 1, 30_000] : ["waiting", 1],
      ]);
      for (const [state] of (await client.call("reclaim", items, false)) as [string][]) {
        answers[state] = (answers[state] as number) + 1;
      }
      told += items.length;
    }
    expect(await other.call("ping")).toEqual([]);
    client.end();
  }
  expect(answers.none).toBeGreaterThan(0);
  expect(server.process.exitCode).toBe(null);
  other.end();
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
});

// The block of the page about NATS runs as its reader would run it.

import { expect, test } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { createBucket } from "../../support/stores/document-stores.ts";
import { startNats } from "../../support/stores/nats.ts";

test("the blocks of the page run: nats", async () => {
  const server = await startNats();
  await createBucket({ kind: "nats", servers: [server.address], bucket: "locks" });
  const replaced = { "localhost:4222": server.address };
  const first = await runSnippet({ page: "nats", replaced });
  expect(first).toEqual({ code: 0, out: "mine, with token 1\n", err: "" });
  const given = `
    export async function after({ locks }) {
      console.log(typeof (await locks.acquire("key")).token);
      process.exit();
    }`;
  expect(await runSnippet({ page: "nats", block: 1, given, replaced })).toEqual({ code: 0, out: "bigint\n", err: "" });
  await server.dispose();
});

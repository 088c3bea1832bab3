// The file of a run with --hold-at-least must survive a power failure: the order of its writes and syncs.

import { beforeEach, expect, test, vi } from "vitest";
import { parseRunOptions } from "../../../src/cli/commands/run/options.ts";
import { runCommand } from "../../../src/cli/commands/run/run.ts";
import { cleanUpAfterEach, startServer } from "../../support/server-fixture.ts";

/** The operations on run files, with the content of the directory or the file at the time. */
const steps: string[] = [];

// the real functions, which also record their calls
vi.mock("node:fs", async (importOriginal) => {
  const original = await importOriginal<typeof import("node:fs")>();
  return {
    ...original,
    fsyncSync(descriptor: number) {
      const stats = original.fstatSync(descriptor);
      steps.push(stats.isDirectory() ? "sync of the directory" : `sync of ${stats.size > 1_000 ? "all" : "a part"}`);
      original.fsyncSync(descriptor);
    },
    renameSync(from: string, to: string) {
      if (to.endsWith(".run")) steps.push("rename");
      original.renameSync(from, to);
    },
  };
});

cleanUpAfterEach();
beforeEach(() => {
  steps.length = 0;
});

async function run(flags: Parameters<typeof parseRunOptions>[1]): Promise<number> {
  const server = await startServer();
  const url = server.addresses[0] as string;
  return runCommand(parseRunOptions(["k"], { url, quiet: true, ...flags }, ["true"]));
}

test("with --hold-at-least the content is on disk before the file has its name, and its name before the command starts", async () => {
  expect(await run({ holdAtLeast: "5s" })).toBe(0);
  expect(steps).toEqual(["sync of all", "rename", "sync of the directory"]);
});

test("without --hold-at-least nothing is synced: no process of a run survives a power failure, so its file has no meaning then", async () => {
  expect(await run({})).toBe(0);
  expect(steps).toEqual(["rename"]);
});

/**
 * A file that is mounted by itself, or is on a file system with two mounts: each has -wal and -shm files or file locks of its
 * own, so what is refused here would give one lock to two holders.
 */

import { mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { PROGRAM } from "../../support/cli-sandbox.ts";
import type { MountNamespace } from "../../support/processes/mount-namespace.ts";
import {
  fuseUnavailableReason,
  mountBindfs,
  mountNamespaceUnavailableReason,
  startMountNamespace,
} from "../../support/processes/mount-namespace.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { test } from "../../support/processes/process-harness.ts";

const skipMounts = mountNamespaceUnavailableReason === null ? "" : `: ${mountNamespaceUnavailableReason}, skipped`;

describe.skipIf(skipMounts !== "")(`in a mount namespace${skipMounts}`, () => {
  // with the characters that the kernel escapes
  const NAMES = ["locks.db", "my \t\\locks#1.db"];

  test.for(NAMES)(
    "a file that is mounted by itself is refused, and not where it came from: %j",
    async (name, { harness }) => {
      const path = join(makeFolder(harness, "data"), name);
      const mounted = join(makeFolder(harness, "mounted"), name);
      for (const file of [path, mounted]) writeFileSync(file, "", { mode: 0o600 });
      const namespace = await startMountNamespace(harness, `mount --bind '${path}' '${mounted}'`);
      expect(await tryLock(harness, path, namespace)).toEqual({ code: 0, out: "ran\n", err: "" });
      const refused = await tryLock(harness, mounted, namespace);
      expect(refused).toMatchObject({ code: 77, out: "" });
      expect(refused.err).toContain("is mounted by itself, without the files that SQLite keeps beside it");
      expect(refused.err).toContain(`mount the folder ${dirname(mounted)} instead of the file`);
      const doctor = await runHoldfast(harness, ["doctor", "--url", toUrl(mounted)], namespace);
      expect(doctor).toMatchObject({ code: 77, out: expect.stringMatching(/^FAIL .*is mounted by itself/) });
    },
  );

  test("a folder that is mounted a second time is the same file: both exclude each other", async ({ harness }) => {
    const [data, mounted] = [makeFolder(harness, "data"), makeFolder(harness, "mounted")];
    const namespace = await startMountNamespace(harness, `mount --bind '${data}' '${mounted}'`);
    const holder = startHoldfast(
      harness,
      ["run", "k", "--url", toUrl(join(data, "locks.db")), "--", "sh", "-c", "echo held; exec sleep 60"],
      namespace,
    );
    await until(() => holder.out() !== "", { within: 20_000, what: "the holder" });
    expect(await tryLock(harness, join(mounted, "locks.db"), namespace)).toMatchObject({ code: 124, out: "" });
    holder.process.kill("SIGTERM");
    await holder.ended;
  });

  const skipFuse = fuseUnavailableReason();

  test.skipIf(skipFuse !== null)(
    `a file system in user space with two mounts is refused on both${skipFuse === null ? "" : `: ${skipFuse}, skipped`}`,
    async ({ harness }) => {
      const [data, ...mounts] = ["data", "one", "other"].map((name) => makeFolder(harness, name)) as [
        string,
        string,
        string,
      ];
      const namespace = await startMountNamespace(harness, "");
      await mountBindfs(harness, namespace, data, mounts);
      for (const mount of mounts) {
        const path = join(mount, "locks.db");
        const refused = await tryLock(harness, path, namespace);
        expect(refused).toMatchObject({ code: 77, out: "" });
        expect(refused.err).toContain(
          `${path} is on FUSE or virtiofs, through which two processes could hold one lock`,
        );
        expect(refused.err).toContain("put it on a local file system");
        const doctor = await runHoldfast(harness, ["doctor", "--url", toUrl(path)], namespace);
        expect(doctor).toMatchObject({ code: 77, out: expect.stringMatching(/^FAIL .*is on FUSE or virtiofs/) });
      }
      expect(await tryLock(harness, join(data, "locks.db"), namespace)).toMatchObject({ code: 0, out: "ran\n" });
    },
  );
});

function makeFolder(harness: ProcessHarness, name: string): string {
  mkdirSync(harness.path(name));
  return realpathSync(harness.path(name));
}

function toUrl(path: string): string {
  return `sqlite:${encodeURI(path).replaceAll("#", "%23")}`;
}

interface CommandResult {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function tryLock(harness: ProcessHarness, path: string, namespace: MountNamespace): Promise<CommandResult> {
  return runHoldfast(harness, ["run", "k", "--no-wait", "--url", toUrl(path), "--", "echo", "ran"], namespace);
}

async function runHoldfast(
  harness: ProcessHarness,
  args: readonly string[],
  namespace: MountNamespace,
): Promise<CommandResult> {
  const running = startHoldfast(harness, args, namespace);
  const { code } = await running.ended;
  return { code, out: running.out(), err: running.err() };
}

function startHoldfast(
  harness: ProcessHarness,
  args: readonly string[],
  { commandPrefix }: MountNamespace,
): ReturnType<ProcessHarness["startProgram"]> {
  const [program, ...prefix] = commandPrefix;
  return harness.startProgram([program, ...prefix, process.execPath, PROGRAM, ...args]);
}

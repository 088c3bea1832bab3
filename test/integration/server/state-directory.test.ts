import {
  chmodSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { ServeOptions } from "../../../src/server/server.ts";
import { computeChecksum } from "../../../src/util/checksum.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** A directory in which a server ran and was shut down. */
async function createUsedState(): Promise<string> {
  const dir = createTemporaryDirectory();
  const it = await startServer({ in: dir });
  const { driver } = await openClient(it.addresses[0] as string);
  await driver.claim(makeClaim("k", { ttlMs: 86_400_000 }));
  await driver.claim(makeClaim("other"));
  await it.close();
  await driver.close();
  return dir;
}

test("the directory and its files are accessible to their owner only", async () => {
  const dir = await createUsedState();
  expect(statSync(join(dir, "state")).mode & 0o777).toBe(0o700);
  for (const name of ["state", "journal", "sessions"])
    expect(statSync(join(dir, "state", name)).mode & 0o777).toBe(0o600);
});

test("a second server on one state directory is refused", async () => {
  const dir = createTemporaryDirectory();
  await startServer({ in: dir });
  await expect(startServer({ in: dir, listen: `holdfast+unix:${join(dir, "socket2")}` })).rejects.toThrow(
    /used by another server/,
  );
});

test("a second server on one socket is refused, and the first continues", async () => {
  const dir = createTemporaryDirectory();
  const it = await startServer({ in: dir });
  await expect(startServer({ in: dir, state: join(dir, "state2") })).rejects.toThrow(/another server already listens/);
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k")));
});

test("after a clean shutdown the table is saved, and the next start grants at once", async () => {
  const dir = await createUsedState();
  const it = await startServer({ in: dir });
  expect(it.recoveryRemainingMs).toBe(0);
  expect(it.stats().claims).toBe(2);
});

test.each(["state", "journal"])("a damaged %s is refused with the remedy", async (name) => {
  const dir = await createUsedState();
  const path = join(dir, "state", name);
  const text = readFileSync(path, "utf8");
  writeFileSync(path, text.replace(/"ttlMs":\d/, '"ttlMs":9'));
  await expect(startServer({ in: dir })).rejects.toThrow(/damaged: .*move it .*away/);
  renameSync(path, `${path}.away`);
  if (name === "journal") {
    await expect(startServer({ in: dir })).rejects.toThrow(/journal is missing: .*move it and "state" away/);
    renameSync(join(dir, "state", "state"), join(dir, "state", "state.away"));
  }
  expect((await startServer({ in: dir })).recoveryRemainingMs).toBeGreaterThan(59_000);
});

test("a journal that was cut off during a write loses only that write", async () => {
  const dir = await createUsedState();
  rmSync(join(dir, "state", "state"));
  const path = join(dir, "state", "journal");
  const text = readFileSync(path, "utf8");
  // its header and the claim with a lease of a day
  expect(text.split("\n")).toHaveLength(3);
  writeFileSync(path, text + text.slice(-60, -1));
  const it = await startServer({ in: dir });
  expect(it.stats().claims).toBe(1);
});

test.each([
  [1, /has layout 1, but this version supports 2: move its directory away when no lock is held$/],
  [3, /has layout 3, but this version supports 2: run a newer holdfast$/],
])("a state of layout %i is refused in one sentence", async (layout, message) => {
  const dir = await createUsedState();
  const path = join(dir, "state", "state");
  const other = readFileSync(path, "utf8").trimEnd().slice(17).replace('"layout":2', `"layout":${layout}`);
  writeFileSync(path, `${computeChecksum(other)} ${other}\n`);
  await expect(startServer({ in: dir })).rejects.toThrow(message);
});

test("the journal has room for the end of each of its claims", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  const claims = Array.from({ length: 300 }, (_, index) => makeClaim(`k${index}`, { ttlMs: 86_400_000 }));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  const path = join(it.dir, "state", "journal");
  const text = readFileSync(path, "utf8");
  await driver.release(claims.map((claim) => ({ claim, hasUnansweredClaim: false })));
  const after = readFileSync(path, "utf8");
  const written = after.trimEnd().length - text.trimEnd().length;
  expect(text.length - text.trimEnd().length).toBeGreaterThanOrEqual(written);
  // the releases have not made it longer
  expect([written > 300 * 50, after.length]).toEqual([true, text.length]);
});

test("a missing state file in a directory that has been in use means an unclean start; a missing directory means a first start", async () => {
  const dir = await createUsedState();
  rmSync(join(dir, "state", "state"));
  const it = await startServer({ in: dir });
  expect(it.recoveryRemainingMs).toBeGreaterThan(59_000);
  await it.close();
  rmSync(join(dir, "state"), { recursive: true });
  expect((await startServer({ in: dir })).recoveryRemainingMs).toBe(0);
});

test("a linked state is refused: the directory, a file, and a second name", async () => {
  const dir = await createUsedState();
  const state = join(dir, "state");
  symlinkSync(state, join(dir, "link"));
  await expect(startServer({ in: dir, state: join(dir, "link") })).rejects.toThrow(/is a symbolic link/);
  renameSync(join(state, "state"), join(dir, "elsewhere"));
  symlinkSync(join(dir, "elsewhere"), join(state, "state"));
  await expect(startServer({ in: dir })).rejects.toThrow(/is a symbolic link/);
  rmSync(join(state, "state"));
  linkSync(join(dir, "elsewhere"), join(state, "state"));
  await expect(startServer({ in: dir })).rejects.toThrow(/second name/);
});

test("a state that is open to other users is refused: the directory, and a file", async () => {
  const dir = await createUsedState();
  chmodSync(join(dir, "state"), 0o750);
  await expect(startServer({ in: dir })).rejects.toThrow(/open to other users \(mode 750\): chmod 700/);
  chmodSync(join(dir, "state"), 0o700);
  chmodSync(join(dir, "state", "journal"), 0o644);
  await expect(startServer({ in: dir })).rejects.toThrow(/open to other users \(mode 644\): chmod 600/);
});

test("a directory in place of a file is refused, and a file in place of the directory", async () => {
  const dir = await createUsedState();
  rmSync(join(dir, "state", "state"));
  mkdirSync(join(dir, "state", "state"), { mode: 0o700 });
  await expect(startServer({ in: dir })).rejects.toThrow(/is not a file: move it away|EISDIR/);
  rmSync(join(dir, "state"), { recursive: true });
  writeFileSync(join(dir, "state"), "");
  await expect(startServer({ in: dir })).rejects.toThrow(/not a directory/);
});

test("a state that cannot be written stops the start", async () => {
  const dir = await createUsedState();
  // root ignores modes, but not even root can write a file where a directory is
  mkdirSync(join(dir, "state", "state.new"));
  await expect(startServer({ in: dir })).rejects.toThrow(/cannot be written/);
});

test.each([
  ["state missing", { listen: "holdfast+unix:/tmp/x" }],
  ["no address", { listen: [], state: "none" }],
  ["a relative socket", { listen: "unix:x", state: "none" }],
  ["a socket path that is too long", { listen: `holdfast+unix:/${"x".repeat(103)}`, state: "none" }],
  ["an address that is not of this machine", { listen: "holdfast://0.0.0.0:0", state: "none" }],
  ["a name that may be anywhere", { listen: "holdfast://example.com:7420", state: "none" }],
  ["a port that is none", { listen: "holdfast://127.0.0.1:65536", state: "none" }],
  ["something else", { listen: "http://127.0.0.1", state: "none" }],
])("serve() refuses with a TypeError: %s", async (_, options) => {
  const { serve } = await import("../../../src/server/server.ts");
  await expect(serve(options as ServeOptions)).rejects.toThrow(TypeError);
});

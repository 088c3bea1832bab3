// The first start, the remaining recovery after a stop, how long a recovery lasts, and when a server ends by itself.

import {
  chmodSync,
  existsSync,
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
import { checkOptions, StateError } from "../../../src/server/server.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test.each([
  ["empty", []],
  ["a mounted volume", ["lost+found"]],
  ["kept by git", [".keep"]],
])("a directory that has never been in use (%s) is a first start: locks are granted at once", async (_, names) => {
  const dir = createTemporaryDirectory();
  mkdirSync(join(dir, "state"), { mode: 0o700 });
  for (const name of names) mkdirSync(join(dir, "state", name), { mode: 0o700 });
  const it = await startServer({ in: dir });
  expect(it.recoveryRemainingMs).toBe(0);
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k", { wait: false })));
  expect(it.logged).toEqual([]);
});

test.each([0o755, 0o750, 0o711])(
  "an empty directory of mode %o is closed to other users, and that is logged",
  async (mode) => {
    const dir = createTemporaryDirectory();
    const state = join(dir, "state");
    mkdirSync(state);
    chmodSync(state, mode);
    const { problems, warnings } = await checkOptions({ listen: `holdfast+unix:${join(dir, "socket")}`, state });
    expect([problems, warnings]).toEqual([
      [],
      [expect.stringMatching(/empty and open to other users.*the server will set mode 700/)],
    ]);
    const it = await startServer({ in: dir });
    expect(statSync(state).mode & 0o777).toBe(0o700);
    expect(it.recoveryRemainingMs).toBe(0);
    expect(it.logged).toEqual([
      expect.stringMatching(/was empty and open to other users \(mode \d+\): its mode is now 700/),
    ]);
  },
);

test.each([
  ["others may write into it", 0o777, []],
  ["the group may write into it", 0o770, []],
  ["it is not empty", 0o755, ["something"]],
])("a directory that is open to other users is refused and left unchanged if %s", async (_, mode, names) => {
  const dir = createTemporaryDirectory();
  const state = join(dir, "state");
  mkdirSync(state);
  for (const name of names) writeFileSync(join(state, name), "");
  chmodSync(state, mode);
  await expect(startServer({ in: dir })).rejects.toThrow(/open to other users.*chmod 700/);
  expect(statSync(state).mode & 0o777).toBe(mode);
});

test.each(["lock", "state", "journal", "sessions"])(
  "a directory in which only %s is left is not a first start",
  async (name) => {
    const dir = createTemporaryDirectory();
    await (await startServer({ in: dir })).close();
    for (const other of ["lock", "state", "journal", "sessions"]) {
      if (other !== name) rmSync(join(dir, "state", other));
    }
    if (name === "state") return expect(startServer({ in: dir })).rejects.toThrow(/journal is missing/);
    expect((await startServer({ in: dir })).recoveryRemainingMs).toBeGreaterThan(59_000);
  },
);

test("firstStart skips the minute of a server without a state directory, and is refused on a directory that has been in use", async () => {
  expect((await startServer({ state: "none" })).recoveryRemainingMs).toBeGreaterThan(59_000);
  const it = await startServer({ state: "none", firstStart: true });
  expect(it.recoveryRemainingMs).toBe(0);
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k", { wait: false })));
  const dir = createTemporaryDirectory();
  await (await startServer({ in: dir, firstStart: true })).close();
  await expect(startServer({ in: dir, firstStart: true })).rejects.toThrow(
    /has been in use .*: this is not its first start/,
  );
  // a first start that got no further than its lock
  for (const name of ["state", "journal", "sessions"]) rmSync(join(dir, "state", name));
  expect((await startServer({ in: dir, firstStart: true })).recoveryRemainingMs).toBe(0);
});

test("a stop during recovery keeps the remaining time: after three starts in a row recovery ends", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const silentClient = await harness.connectClient(false);
  const activeClient = await harness.connectClient(false);
  const ownClaim = makeClaim("mine", { ttlMs: 20_000 });
  await silentClient.driver.claim(makeClaim("k", { ttlMs: 60_000 }));
  const { token } = expectHeld(await activeClient.driver.claim(ownClaim));
  silentClient.isUnreachable = true;
  harness.crash();
  const waitingClaim = makeClaim("k");
  let newClient = null as Awaited<ReturnType<ServerHarness["connectClient"]>> | null;
  for (const remainingMs of [60_000, 40_000, 20_000]) {
    await harness.start();
    expect(harness.inspect().recoveryRemainingMs).toBe(remainingMs);
    expect(harness.inspect().recoveryReason).toBe("crash");
    newClient ??= await harness.connectClient(false);
    for (let elapsedMs = 0; elapsedMs < 20_000; elapsedMs += 5_000) {
      await harness.clock.advance(5_000);
      await activeClient.driver.renew([ownClaim]);
      if (elapsedMs === 0) await newClient.driver.claim(waitingClaim);
    }
    if (remainingMs > 20_000) await harness.stop();
  }
  expect(harness.inspect().isRecovering).toBe(false);
  expect(newClient?.pushes.filter(({ answer }) => answer?.state === "held").map(({ id }) => id)).toEqual([
    waitingClaim.id,
  ]);
  expect((await activeClient.driver.renew([ownClaim]))[0]).toMatchObject({ state: "held", token });
  // no remaining time is left for the next start
  await harness.stop();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
});

test("on a Unix socket, after a stop during recovery, the next start waits for the clients that had not reconnected", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const lostClient = await harness.connectClient();
  const claimA = makeClaim("k");
  const { token } = expectHeld(await lostClient.driver.claim(claimA));
  lostClient.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(1_000);
  await harness.stop();
  await harness.start();
  expect(harness.inspect().isRecovering).toBe(true);
  lostClient.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(false);
  expect((await lostClient.driver.renew([claimA]))[0]).toMatchObject({ state: "held", token });
});

test("a crash after a stop during recovery begins it again: the remaining time is known only after a stop", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const silentClient = await harness.connectClient(false);
  await silentClient.driver.claim(makeClaim("k"));
  silentClient.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(20_000);
  await harness.stop();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(10_000);
  harness.crash();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(30_000);
});

test("over TCP a recovery lasts as long as the longest lease granted, so that repeated crashes do not prevent grants", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  const granted: string[] = [];
  const { id } = makeClaim("");
  for (let crash = 0; crash < 5; crash++) {
    const claim = makeClaim("k", { ttlMs: 3_000 });
    await client.driver.claim(claim);
    await harness.clock.advance(1_500);
    await client.driver.renew([claim]);
    await harness.clock.advance(1_500);
    const answer = (await client.driver.renew([claim]))[0];
    granted.push(answer?.state ?? "unknown");
    await client.driver.release(toReleases(claim));
    harness.crash();
    await harness.start();
    expect(harness.inspect().recoveryRemainingMs).toBe(3_000);
    await harness.clock.advance(500);
  }
  expect([id.length, ...granted]).toEqual([26, "held", "held", "held", "held", "held"]);
});

test("a longer lease is on disk before it is granted, also after a shorter one was written", async () => {
  const harness = new ServerHarness({ remote: true });
  const disk = harness.storage as MemoryStorage;
  const longest = (): number => JSON.parse((disk.state as string).slice(17)).longestMs;
  await harness.start();
  const { driver } = await harness.connectClient(false);
  expect(longest()).toBe(30_000);
  expectHeld(await driver.claim(makeClaim("a", { ttlMs: 3_000 })));
  await harness.clock.advance(1_500);
  expect(longest()).toBe(3_000);
  const open = disk.blockWrites();
  let isAnswered = false;
  const pendingClaim = driver.claim(makeClaim("b")).finally(() => {
    isAnswered = true;
  });
  await flushEventLoop(40);
  expect(isAnswered).toBe(false);
  open();
  expectHeld(await pendingClaim);
  expect(longest()).toBe(30_000);
  // a silent session lasts as long
  harness.crash();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(30_000);
});

test("close() rejects if the state could not be saved, and still closes everything", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k")));
  const blocked = join(it.dir, "state", "state.new");
  // a directory in its place: even root cannot replace the file
  mkdirSync(blocked);
  const closed = it.close();
  await expect(closed).rejects.toThrow(StateError);
  await expect(closed).rejects.toThrow(/the state could not be saved: the next start will begin with a recovery/);
  rmSync(blocked, { recursive: true });
  expect((await startServer({ in: it.dir })).recoveryRemainingMs).toBeGreaterThan(0);
});

test.each([
  ["removed", (path: string) => rmSync(path)],
  [
    "replaced",
    (path: string) => {
      renameSync(path, `${path}.away`);
      writeFileSync(path, "", { mode: 0o600 });
    },
  ],
  ["moved away with its directory", (path: string) => renameSync(join(path, ".."), join(path, "..", "..", "moved"))],
])("a server whose state lock was %s grants nothing more and ends", async (_, damage) => {
  const dir = createTemporaryDirectory();
  const it = await startServer({ in: dir });
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k")));
  damage(join(dir, "state", "lock"));
  // a write could reach a state that another server uses now
  await expect(driver.claim(makeClaim("long", { ttlMs: 600_000, wait: false }))).rejects.toThrow();
  expect(await it.ownershipLost).toMatch(/lock was removed or replaced/);
  expect(it.ready()).toMatchObject({ ok: false });
  expect(it.logged.join("\n")).toMatch(/the server is ending: .*lock was removed or replaced/);
  await expect(it.close()).rejects.toThrow(/could not be saved/);
  await driver.close();
});

test("a second server that took over the state of a running one recovers as after a crash, and its files are not overwritten", async () => {
  const dir = createTemporaryDirectory();
  const first = await startServer({ in: dir });
  const { driver } = await openClient(first.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k")));
  rmSync(join(dir, "state", "lock"));
  const second = await startServer({ in: dir, listen: `holdfast+unix:${join(dir, "socket2")}` });
  expect(second.recoveryRemainingMs).toBeGreaterThan(0);
  const text = readFileSync(join(dir, "state", "state"), "utf8");
  await first.ownershipLost;
  await first.close().catch(() => undefined);
  expect(readFileSync(join(dir, "state", "state"), "utf8")).toBe(text);
  await driver.close();
});

test("a server whose socket was removed saves its state and ends", async () => {
  const it = await startServer();
  rmSync(it.path);
  expect(await it.ownershipLost).toMatch(/clients can no longer reach this server: .*socket was removed or replaced/);
  await it.close();
  expect((await startServer({ in: it.dir })).recoveryRemainingMs).toBe(0);
});

const rejectedOptions: readonly (readonly [string, (dir: string) => string, RegExp])[] = [
  ["below /proc", () => "/proc/holdfast/state", /\/proc belongs to the kernel/],
  ["below /sys", () => "/sys/holdfast", /\/sys belongs to the kernel/],
  [
    "below a link to nowhere",
    (dir) => {
      symlinkSync(join(dir, "nowhere"), join(dir, "link"));
      return join(dir, "link", "x");
    },
    /link is a link to a path that does not exist/,
  ],
  [
    "below a file",
    (dir) => {
      writeFileSync(join(dir, "file"), "");
      return join(dir, "file", "a", "b");
    },
    /file is not a directory/,
  ],
  [
    "a link, with a slash at its end",
    (dir) => {
      mkdirSync(join(dir, "real"), { mode: 0o700 });
      symlinkSync(join(dir, "real"), join(dir, "link"));
      return `${join(dir, "link")}/`;
    },
    /link is a symbolic link/,
  ],
];

test.runIf(process.platform === "linux").each(rejectedOptions)(
  "a state directory %s is refused at once, and --check reports the same",
  async (_, prepare, message) => {
    const dir = createTemporaryDirectory();
    const state = prepare(dir);
    const options = { listen: `holdfast+unix:${join(dir, "socket")}`, state };
    const { problems } = await checkOptions(options);
    expect(problems).toMatchObject([
      { option: "state", message: expect.stringMatching(message), isEnvironmental: true },
    ]);
    await expect(startServer({ in: dir, state })).rejects.toThrow(message);
    expect(existsSync(join(dir, "nowhere"))).toBe(false);
  },
);

test("checkOptions() warns of a start that would grant nothing for a while, unless a server is running on the state directory", async () => {
  const dir = createTemporaryDirectory();
  const it = await startServer({ in: dir });
  const options = { listen: `holdfast+unix:${join(dir, "socket")}`, state: join(dir, "state") };
  const { driver } = await openClient(it.addresses[0] as string);
  expectHeld(await driver.claim(makeClaim("k")));
  expect(await checkOptions(options)).toEqual({ problems: [], warnings: [] });
  // as after a kill
  const stateAfterKill = readFileSync(join(dir, "state", "state"));
  const sessions = readFileSync(join(dir, "state", "sessions"));
  await it.close();
  expect(await checkOptions(options)).toEqual({ problems: [], warnings: [] });
  writeFileSync(join(dir, "state", "state"), stateAfterKill);
  writeFileSync(join(dir, "state", "sessions"), sessions);
  expect((await checkOptions(options)).warnings).toEqual([
    "the previous run of the server did not stop cleanly: granting nothing new for up to 30 s",
  ]);
  rmSync(join(dir, "state", "state"));
  expect((await checkOptions(options)).warnings).toEqual([
    "the state file is missing from a directory that has been in use: granting nothing new for up to 60 s",
  ]);
  const stateless = { ...options, state: "none" };
  expect((await checkOptions(stateless)).warnings).toEqual([
    expect.stringMatching(/no state is kept.* for up to 60 s/),
  ]);
  expect((await checkOptions({ ...stateless, firstStart: true })).warnings).toEqual([]);
  expect((await checkOptions({ ...options, firstStart: true })).problems).toMatchObject([{ option: "state" }]);
});

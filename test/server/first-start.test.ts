// The first start, the rest of a recovery over a stop, how long a recovery lasts, and what ends a server by itself.

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
import { checkOptions, StateError } from "../../src/server/serve.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, client, folder, held, running } from "./support.ts";
import type { FakeDisk } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

test.each([
  ["empty", []],
  ["a mounted volume", ["lost+found"]],
  ["kept by git", [".keep"]],
])("a folder that has never been in use (%s) is a first start: locks are granted at once", async (_, names) => {
  const dir = folder();
  mkdirSync(join(dir, "state"), { mode: 0o700 });
  for (const name of names) mkdirSync(join(dir, "state", name), { mode: 0o700 });
  const it = await running({ in: dir });
  expect(it.reclaimMs).toBe(0);
  const { driver } = await client(it.addresses[0] as string);
  held(await driver.claim(claimOf("k", { wait: false })));
  expect(it.logged).toEqual([]);
});

test.each([0o755, 0o750, 0o711])("an empty folder of mode %o is closed to others, and that is logged", async (mode) => {
  const dir = folder();
  const state = join(dir, "state");
  mkdirSync(state);
  chmodSync(state, mode);
  const { faults, warnings } = await checkOptions({ listen: `unix:${join(dir, "socket")}`, state });
  expect([faults, warnings]).toEqual([
    [],
    [expect.stringMatching(/empty and open to others.*the start sets mode 700/)],
  ]);
  const it = await running({ in: dir });
  expect(statSync(state).mode & 0o777).toBe(0o700);
  expect(it.reclaimMs).toBe(0);
  expect(it.logged).toEqual([
    expect.stringMatching(/is empty and was open to others \(mode \d+\): it has mode 700 now/),
  ]);
});

test.each([
  ["others may write into it", 0o777, []],
  ["the group may write into it", 0o770, []],
  ["it is not empty", 0o755, ["something"]],
])("a folder that is open to others is refused and left as it was if %s", async (_, mode, names) => {
  const dir = folder();
  const state = join(dir, "state");
  mkdirSync(state);
  for (const name of names) writeFileSync(join(state, name), "");
  chmodSync(state, mode);
  await expect(running({ in: dir })).rejects.toThrow(/open to others.*chmod 700/);
  expect(statSync(state).mode & 0o777).toBe(mode);
});

test.each(["lock", "state", "journal", "sessions"])(
  "a folder in which only %s is left is no first start",
  async (name) => {
    const dir = folder();
    await (await running({ in: dir })).close();
    for (const other of ["lock", "state", "journal", "sessions"]) {
      if (other !== name) rmSync(join(dir, "state", other));
    }
    if (name === "state") return expect(running({ in: dir })).rejects.toThrow(/journal is missing/);
    expect((await running({ in: dir })).reclaimMs).toBeGreaterThan(59_000);
  },
);

test("firstStart skips the minute of a server that keeps nothing, and is refused on a folder that has been in use", async () => {
  expect((await running({ state: "none" })).reclaimMs).toBeGreaterThan(59_000);
  const it = await running({ state: "none", firstStart: true });
  expect(it.reclaimMs).toBe(0);
  const { driver } = await client(it.addresses[0] as string);
  held(await driver.claim(claimOf("k", { wait: false })));
  const dir = folder();
  await (await running({ in: dir, firstStart: true })).close();
  await expect(running({ in: dir, firstStart: true })).rejects.toThrow(
    /has been in use .*: this is not its first start/,
  );
  // a first start that got no further than its lock
  for (const name of ["state", "journal", "sessions"]) rmSync(join(dir, "state", name));
  expect((await running({ in: dir, firstStart: true })).reclaimMs).toBe(0);
});

test("a stop within a recovery keeps the rest of it: three starts in a row come to its end", async () => {
  const world = new World({ remote: true });
  await world.start();
  const silent = await world.client(false);
  const lively = await world.client(false);
  const mine = claimOf("mine", { ttlMs: 20_000 });
  await silent.driver.claim(claimOf("k", { ttlMs: 60_000 }));
  const { token } = held(await lively.driver.claim(mine));
  silent.unreachable = true;
  world.crash();
  const wanted = claimOf("k");
  let newcomer = null as Awaited<ReturnType<World["client"]>> | null;
  for (const leftMs of [60_000, 40_000, 20_000]) {
    await world.start();
    expect(world.kept?.keeper.reclaimMs()).toBe(leftMs);
    expect(world.kept?.keeper.recovery.reason).toBe("crash");
    newcomer ??= await world.client(false);
    for (let passed = 0; passed < 20_000; passed += 5_000) {
      await world.clock.pass(5_000);
      await lively.driver.renew([mine]);
      if (passed === 0) await newcomer.driver.claim(wanted);
    }
    if (leftMs > 20_000) await world.stop();
  }
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(newcomer?.pushes.filter(({ answer }) => answer?.state === "held").map(({ id }) => id)).toEqual([wanted.id]);
  expect((await lively.driver.renew([mine]))[0]).toMatchObject({ state: "held", token });
  // nothing of it is left for the next start
  await world.stop();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
});

test("on a Unix socket the next start waits for those who had not come back when a recovery was cut short by a stop", async () => {
  const world = new World();
  await world.start();
  const away = await world.client();
  const a = claimOf("k");
  const { token } = held(await away.driver.claim(a));
  away.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(1_000);
  await world.stop();
  await world.start();
  expect(world.kept?.keeper.reclaiming).toBe(true);
  away.unreachable = false;
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect((await away.driver.renew([a]))[0]).toMatchObject({ state: "held", token });
});

test("a crash after a stop within a recovery begins it again: what was left is known only after a stop", async () => {
  const world = new World({ remote: true });
  await world.start();
  const silent = await world.client(false);
  await silent.driver.claim(claimOf("k"));
  silent.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(20_000);
  await world.stop();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(10_000);
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(30_000);
});

test("over TCP a recovery lasts as long as the longest lease that was granted, so that crashes in a row come to grants", async () => {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  const granted: string[] = [];
  const { id } = claimOf("");
  for (let crash = 0; crash < 5; crash++) {
    const claim = claimOf("k", { ttlMs: 3_000 });
    await one.driver.claim(claim);
    await world.clock.pass(1_500);
    await one.driver.renew([claim]);
    await world.clock.pass(1_500);
    const answer = (await one.driver.renew([claim]))[0];
    granted.push(answer?.state ?? "unknown");
    await one.driver.release([claim]);
    world.crash();
    await world.start();
    expect(world.kept?.keeper.reclaimMs()).toBe(3_000);
    await world.clock.pass(500);
  }
  expect([id.length, ...granted]).toEqual([26, "held", "held", "held", "held", "held"]);
});

test("a longer lease is on the disk before it is granted, also after a shorter one has been written", async () => {
  const world = new World({ remote: true });
  const disk = world.disk as FakeDisk;
  const longest = (): number => JSON.parse((disk.state as string).slice(17)).longestMs;
  await world.start();
  const { driver } = await world.client(false);
  expect(longest()).toBe(30_000);
  held(await driver.claim(claimOf("a", { ttlMs: 3_000 })));
  await world.clock.pass(1_500);
  expect(longest()).toBe(3_000);
  const open = disk.hang();
  let told = false;
  const usual = driver.claim(claimOf("b")).finally(() => {
    told = true;
  });
  await turns(40);
  expect(told).toBe(false);
  open();
  held(await usual);
  expect(longest()).toBe(30_000);
  // a session lasts as long in silence
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(30_000);
});

test("close() rejects if the state could not be saved, and lets go of everything all the same", async () => {
  const it = await running();
  const { driver } = await client(it.addresses[0] as string);
  held(await driver.claim(claimOf("k")));
  const blocked = join(it.dir, "state", "state.new");
  // a folder in its place: even root cannot replace the file
  mkdirSync(blocked);
  const closed = it.close();
  await expect(closed).rejects.toThrow(StateError);
  await expect(closed).rejects.toThrow(/the state could not be saved: the next start will ask the clients/);
  rmSync(blocked, { recursive: true });
  expect((await running({ in: it.dir })).reclaimMs).toBeGreaterThan(0);
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
  ["moved away with its folder", (path: string) => renameSync(join(path, ".."), join(path, "..", "..", "moved"))],
])("a server whose state lock was %s grants nothing more and ends", async (_, spoil) => {
  const dir = folder();
  const it = await running({ in: dir });
  const { driver } = await client(it.addresses[0] as string);
  held(await driver.claim(claimOf("k")));
  spoil(join(dir, "state", "lock"));
  // a write would reach a state that may be another server's by now
  await expect(driver.claim(claimOf("long", { ttlMs: 600_000, wait: false }))).rejects.toThrow();
  expect(await it.lost).toMatch(/lock was removed or replaced/);
  expect(it.ready()).toMatchObject({ ok: false });
  expect(it.logged.join("\n")).toMatch(/the server ends: .*lock was removed or replaced/);
  await expect(it.close()).rejects.toThrow(/could not be saved/);
  await driver.close();
});

test("a second server that took the state of a running one finds it as after a crash, and nothing is written over its own", async () => {
  const dir = folder();
  const first = await running({ in: dir });
  const { driver } = await client(first.addresses[0] as string);
  held(await driver.claim(claimOf("k")));
  rmSync(join(dir, "state", "lock"));
  const second = await running({ in: dir, listen: `unix:${join(dir, "socket2")}` });
  expect(second.reclaimMs).toBeGreaterThan(0);
  const text = readFileSync(join(dir, "state", "state"), "utf8");
  await first.lost;
  await first.close().catch(() => undefined);
  expect(readFileSync(join(dir, "state", "state"), "utf8")).toBe(text);
  await driver.close();
});

test("a server whose socket was removed saves its state and ends", async () => {
  const it = await running();
  rmSync(it.path);
  expect(await it.lost).toMatch(/nobody can reach this server any more: .*socket was removed or replaced/);
  await it.close();
  expect((await running({ in: it.dir })).reclaimMs).toBe(0);
});

const impossible: readonly (readonly [string, (dir: string) => string, RegExp])[] = [
  ["below /proc", () => "/proc/holdfast/state", /\/proc belongs to the kernel/],
  ["below /sys", () => "/sys/holdfast", /\/sys belongs to the kernel/],
  [
    "below a link to nowhere",
    (dir) => {
      symlinkSync(join(dir, "nowhere"), join(dir, "link"));
      return join(dir, "link", "x");
    },
    /link is a link to what does not exist/,
  ],
  [
    "below a file",
    (dir) => {
      writeFileSync(join(dir, "file"), "");
      return join(dir, "file", "a", "b");
    },
    /file is not a folder/,
  ],
  [
    "a link, with a slash at its end",
    (dir) => {
      mkdirSync(join(dir, "real"), { mode: 0o700 });
      symlinkSync(join(dir, "real"), join(dir, "link"));
      return `${join(dir, "link")}/`;
    },
    /link is a link/,
  ],
];

test.runIf(process.platform === "linux").each(impossible)(
  "a state %s is refused at once, and --check finds the same",
  async (_, make, message) => {
    const dir = folder();
    const state = make(dir);
    const options = { listen: `unix:${join(dir, "socket")}`, state };
    const { faults } = await checkOptions(options);
    expect(faults).toMatchObject([{ option: "state", message: expect.stringMatching(message), named: true }]);
    await expect(running({ in: dir, state })).rejects.toThrow(message);
    expect(existsSync(join(dir, "nowhere"))).toBe(false);
  },
);

test("checkOptions() warns of a start that would grant nothing for a while, unless a server is running with the state", async () => {
  const dir = folder();
  const it = await running({ in: dir });
  const options = { listen: `unix:${join(dir, "socket")}`, state: join(dir, "state") };
  const { driver } = await client(it.addresses[0] as string);
  held(await driver.claim(claimOf("k")));
  expect(await checkOptions(options)).toEqual({ faults: [], warnings: [] });
  // as a kill leaves it
  const killed = readFileSync(join(dir, "state", "state"));
  const list = readFileSync(join(dir, "state", "sessions"));
  await it.close();
  expect(await checkOptions(options)).toEqual({ faults: [], warnings: [] });
  writeFileSync(join(dir, "state", "state"), killed);
  writeFileSync(join(dir, "state", "sessions"), list);
  expect((await checkOptions(options)).warnings).toEqual([
    "the last server did not stop cleanly: granting nothing new for up to 30 s",
  ]);
  rmSync(join(dir, "state", "state"));
  expect((await checkOptions(options)).warnings).toEqual([
    "the state file is missing from a folder that has been in use: granting nothing new for up to 60 s",
  ]);
  const none = { ...options, state: "none" };
  expect((await checkOptions(none)).warnings).toEqual([expect.stringMatching(/nothing is kept.* for up to 60 s/)]);
  expect((await checkOptions({ ...none, firstStart: true })).warnings).toEqual([]);
  expect((await checkOptions({ ...options, firstStart: true })).faults).toMatchObject([{ option: "state" }]);
});

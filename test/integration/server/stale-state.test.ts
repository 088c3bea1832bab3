// A state older than what clients have seen: an older copy of the directory was restored, or the directory was emptied.

import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
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
import { claimState, ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** A client that sends arbitrary frames. */
function openConnection({ service }: ServerHarness, session: string): (frame: string) => unknown[][] {
  if (service === null) throw new Error("the world has started");
  const lines: string[] = [];
  const connection = service.accept(
    { write: (text) => lines.push(text), close: () => undefined },
    { isLocal: true, address: "" },
  );
  connection.receive([JSON.stringify({ hello: { protocol: 1, session } })]);
  return (frame) => {
    lines.length = 0;
    connection.receive([`["${service.runId}",${frame}]`]);
    return lines.flatMap((text) => (JSON.parse(text) as unknown[][]).slice(1));
  };
}

/** The files on disk, to be restored later. */
function copyStorage(disk: MemoryStorage): () => void {
  const { state, journal, sessions, fresh } = disk;
  return () => Object.assign(disk, { state, journal, sessions, fresh });
}

for (const local of [true, false]) {
  const transport = local ? "a Unix socket" : "TCP";

  test(`over ${transport}: with an older copy of a clean state nothing is granted over a holder that reconnects`, async () => {
    const harness = new ServerHarness({ remote: !local });
    await harness.start();
    await harness.stop();
    const savedCopy = copyStorage(harness.storage as MemoryStorage);
    await harness.start();
    const holder = await harness.connectClient(local);
    const idle = await harness.connectClient(local);
    const [claimA, claimB] = [makeClaim("k"), makeClaim("other")];
    const { token } = expectHeld(await holder.driver.claim(claimA));
    await idle.driver.claim(claimB);
    await idle.driver.release(toReleases(claimB));
    holder.isUnreachable = true;
    harness.crash();
    savedCopy();
    await harness.start();
    expect(harness.inspect().isRecovering).toBe(false);
    // a client without locks has seen a later start
    await harness.clock.advance(2_500);
    expect(harness.inspect().recoveryReason).toBe("outdated");
    expect(harness.logLines.join()).toMatch(/a client has seen a later state than this one.*for up to \d+ s/);
    const newClient = await harness.connectClient(local);
    const waitingClaim = makeClaim("k");
    expect(await newClient.driver.claim(waitingClaim)).toMatchObject({ state: "waiting" });
    holder.isUnreachable = false;
    await harness.clock.advance(2_500);
    expect(await claimState(holder, claimA)).toMatchObject({ state: "held", token });
    expect(await claimState(newClient, waitingClaim)).toMatchObject({ state: "waiting" });
    // it lasts as long as leases from before the start can
    for (const ms of [20_000, 20_000, 10_000]) {
      await harness.clock.advance(ms);
      await holder.driver.renew([claimA]);
    }
    expect(harness.inspect().isRecovering).toBe(true);
    await harness.clock.advance(6_000);
    expect(harness.inspect().isRecovering).toBe(false);
    expect(await claimState(holder, claimA)).toMatchObject({ state: "held", token });
  });

  test(`over ${transport}: in an emptied directory a reclaim from before ends the conflicting claims, and their holders are notified at once`, async () => {
    const harness = new ServerHarness({ remote: !local });
    // the next server's clock is behind, so that its tokens are lower
    harness.serverClockOffsetMs = 100_000;
    await harness.start();
    const holder = await harness.connectClient(local);
    const long = makeClaim("long", { ttlMs: 600_000 });
    const claimA = makeClaim("k");
    const { token } = expectHeld(await holder.driver.claim(claimA));
    expectHeld(await holder.driver.claim(long));
    holder.isUnreachable = true;
    harness.crash();
    harness.serverClockOffsetMs = 0;
    Object.assign(harness.storage as MemoryStorage, { state: null, journal: "", sessions: null, fresh: true });
    await harness.start();
    const newer = await harness.connectClient(local);
    const claimB = makeClaim("k");
    expectHeld(await newer.driver.claim(claimB));
    holder.isUnreachable = false;
    await harness.clock.advance(2_500);
    expect(newer.pushes).toContainEqual({ id: claimB.id, answer: { state: "none", reason: "expired" } });
    expect(await claimState(holder, claimA)).toMatchObject({ state: "held", token });
    expect(await claimState(holder, long)).toMatchObject({ state: "held" });
    expect(harness.inspect().recoveryReason).toBe("outdated");
    expect(await newer.driver.claim(makeClaim("free", { wait: false }))).toMatchObject({ state: "none" });
    // a crash meanwhile does not shorten it
    harness.crash();
    await harness.start();
    expect(harness.inspect().recoveryRemainingMs).toBe(60_000);
    // nor does it end when the clients that this state knows reconnect
    await harness.clock.advance(5_000);
    expect(harness.inspect().isRecovering).toBe(true);
  });
}

test("a crash in a recovery that a client has begun forgets none of the clients that have not reconnected", async () => {
  const harness = new ServerHarness();
  await harness.start();
  await harness.stop();
  const savedCopy = copyStorage(harness.storage as MemoryStorage);
  await harness.start();
  const [holder, other] = [await harness.connectClient(), await harness.connectClient()];
  const [claimA, claimB] = [makeClaim("k"), makeClaim("other")];
  const { token } = expectHeld(await holder.driver.claim(claimA));
  await other.driver.claim(claimB);
  holder.isUnreachable = true;
  harness.crash();
  savedCopy();
  await harness.start();
  await harness.clock.advance(2_500);
  expect(harness.inspect().recoveryReason).toBe("outdated");
  // the list of this start names the other one only, and it reconnects
  harness.crash();
  await harness.start();
  await harness.clock.advance(2_500);
  expect(await claimState(other, claimB)).toMatchObject({ state: "held" });
  expect(harness.inspect().isRecovering).toBe(true);
  holder.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(holder, claimA)).toMatchObject({ state: "held", token });
});

test("a client that does not report the last start that it saw reveals it by its token", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const ceiling = BigInt(JSON.parse((harness.storage?.state ?? "").slice(17)).bound);
  await harness.stop();
  await harness.start();
  const send = openConnection(harness, randomId());
  const token = ceiling + 1n;
  const reclaim = `["reclaim",1,[[["${randomId()}",["k"],30000],["held","${token}",1,20000]]],true]`;
  expect(send(reclaim)).toEqual([["ok", 1, [["held", `${token}`, 1, 20_000]]]]);
  expect(harness.inspect().recoveryReason).toBe("outdated");
  await harness.clock.advance(21_000);
  const { driver } = await harness.connectClient();
  expect(await driver.claim(makeClaim("k", { wait: false }))).toMatchObject({ state: "none" });
});

test("a state counts as current for a client that has seen the start before it, and for one that reconnects to the same start", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  await client.driver.claim(makeClaim("k"));
  client.disconnect();
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(false);
  await harness.stop();
  await harness.start();
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(client.dials).toBeGreaterThan(2);
});

test("a minute after the start no short lease from before can be held: a client that reconnects then starts no recovery", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const lateClient = await harness.connectClient(false);
  const claimA = makeClaim("k", { ttlMs: 600_000 });
  await lateClient.driver.claim(claimA);
  lateClient.isUnreachable = true;
  harness.crash();
  Object.assign(harness.storage as MemoryStorage, { state: null, journal: "", sessions: null, fresh: true });
  await harness.start();
  await harness.clock.advance(60_000);
  lateClient.isUnreachable = false;
  await harness.clock.advance(5_000);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(await claimState(lateClient, claimA)).toMatchObject({ state: "none" });
});

test("a directory that was copied back while clients were running: the files themselves", async () => {
  const dir = createTemporaryDirectory();
  const first = await startServer({ in: dir });
  await first.close();
  cpSync(join(dir, "state"), join(dir, "copy"), { recursive: true });
  const second = await startServer({ in: dir });
  const holder = await openClient(second.addresses[0] as string);
  const claimA = makeClaim("k");
  const { token } = expectHeld(await holder.driver.claim(claimA));
  await second.close();
  rmSync(join(dir, "state"), { recursive: true });
  cpSync(join(dir, "copy"), join(dir, "state"), { recursive: true });
  const third = await startServer({ in: dir });
  await until(() => third.recoveryRemainingMs > 0, { within: 5_000, what: "the recovery" });
  const other = await openClient(third.addresses[0] as string);
  expect(await other.driver.claim(makeClaim("k", { wait: false }))).toMatchObject({ state: "none" });
  expect((await holder.driver.renew([claimA]))[0]).toMatchObject({ state: "held", token });
});

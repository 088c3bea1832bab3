import { expect, test } from "vitest";
import { randomId } from "../../../src/util/ids.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { HarnessClient } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const countGrants = (client: HarnessClient, id: string): number =>
  client.pushes.filter((push) => push.id === id && push.answer?.state === "held").length;

/** The state that the server itself reports, without changing anything. */
const claimState = async (client: HarnessClient, claim: Parameters<HarnessClient["driver"]["renew"]>[0][0]) =>
  (await client.driver.renew([claim]))[0];

test("the first start grants at once", async () => {
  const harness = new ServerHarness();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
  const { driver } = await harness.connectClient();
  expectHeld(await driver.claim(makeClaim("k")));
});

test("after a crash clients reclaim their locks, and nothing new is granted before", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const silentClient = await harness.connectClient();
  const claimA = makeClaim("a");
  const claimB = makeClaim("b");
  const before = expectHeld(await client.driver.claim(claimA));
  await silentClient.driver.claim(claimB);
  silentClient.isUnreachable = true;
  await harness.clock.advance(1_000);
  harness.crash();
  await harness.start();
  await harness.clock.advance(2_000);
  const otherClient = await harness.connectClient();
  expect(await otherClient.driver.claim(makeClaim("a", { wait: false }))).toEqual({ state: "none" });
  const wantsB = makeClaim("b");
  expect(await otherClient.driver.claim(wantsB)).toMatchObject({ state: "waiting" });
  expect(client.pushes).toContainEqual({ id: null, answer: undefined });
  expect(await claimState(client, claimA)).toMatchObject({ state: "held", token: before.token });
  await harness.clock.advance(26_000);
  expect(countGrants(otherClient, wantsB.id)).toBe(0);
  await harness.clock.advance(2_500);
  expect(countGrants(otherClient, wantsB.id)).toBe(1);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held", token: before.token });
});

test("a report that was lost with its connection is sent again over the next one", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  const waiter = await harness.connectClient(false);
  const [claimA, waits] = [makeClaim("a"), makeClaim("a")];
  const before = expectHeld(await client.driver.claim(claimA));
  expect(await waiter.driver.claim(waits)).toMatchObject({ state: "waiting" });
  harness.crash();
  await harness.start();
  const { linesSent, dials } = client;
  const advance = harness.clock.advance(5_000);
  // its hello, and its reports after the welcome
  while (client.linesSent < linesSent + 2) await flushEventLoop(1);
  client.disconnect();
  await advance;
  expect(client.dials - dials).toBeGreaterThan(1);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held", token: before.token });
  // far sooner than after the longest recovery
  expect(harness.inspect().isRecovering).toBe(false);
  expectHeld(await waiter.driver.claim(makeClaim("b", { wait: false })));
  await client.driver.release(toReleases(claimA));
  await flushEventLoop();
  expect(countGrants(waiter, waits.id)).toBe(1);
  // a report that was answered is not sent again
  const after = client.linesSent;
  client.disconnect();
  await harness.clock.advance(2_000);
  expect(client.linesSent - after).toBeLessThanOrEqual(1);
});

test.for([
  ["stop", "lives"],
  ["crash", "lives"],
  ["stop", "is gone"],
  ["crash", "is gone"],
] as const)(
  "on a Unix socket, after a %s, a connection ends before its client reported anything, its process %s: that alone does not end the session",
  async ([ending, then]) => {
    const harness = new ServerHarness();
    await harness.start();
    const client = await harness.connectClient();
    const claimA = makeClaim("a", { ttlMs: "session" });
    const { token } = expectHeld(await client.driver.claim(claimA));
    if (ending === "stop") await harness.stop();
    else harness.crash();
    await harness.start();
    const { linesSent } = client;
    const { sessionId: session } = client;
    const advance = harness.clock.advance(2_000);
    while (!harness.inspect().sessions.get(session)?.sink) await flushEventLoop(1);
    client.isUnreachable = true;
    if (then === "is gone") client.processState = "gone";
    client.disconnect();
    await advance;
    // its hello, and nothing else
    expect(client.linesSent).toBe(linesSent + 1);
    const otherClient = await harness.connectClient();
    const answer = await otherClient.driver.claim(makeClaim("a", { wait: false }));
    if (then === "is gone") return void expectHeld(answer);
    expect(answer.state).toBe("none");
    client.isUnreachable = false;
    await harness.clock.advance(10_000);
    expect(await claimState(client, claimA)).toMatchObject({ state: "held", token });
    expect(harness.inspect().isRecovering).toBe(false);
    // from now on the end of its connection ends the session again
    client.isUnreachable = true;
    client.disconnect();
    await flushEventLoop();
    expectHeld(await otherClient.driver.claim(makeClaim("a", { wait: false })));
  },
);

test("on a Unix socket a connection that ends after the disk refused its client's reclaims does not end the session", async () => {
  const harness = new ServerHarness();
  const storage = harness.storage as NonNullable<typeof harness.storage>;
  await harness.start();
  const client = await harness.connectClient();
  const { sessionId } = client;
  const { state: olderState } = storage;
  const claimA = makeClaim("a", { ttlMs: 50_000 });
  const { token } = expectHeld(await client.driver.claim(claimA));
  harness.crash();
  // an older copy, which knows only shorter leases: the reclaim needs a write
  storage.state = olderState;
  await harness.start();
  storage.isFull = true;
  await harness.clock.advance(2_000);
  expect(harness.inspect().records.size).toBe(0);
  client.isUnreachable = true;
  client.disconnect();
  await flushEventLoop();
  expect(harness.inspect().sessions.has(sessionId)).toBe(true);
  storage.isFull = false;
  await harness.clock.advance(3_000);
  client.isUnreachable = false;
  await harness.clock.advance(5_000);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held", token });
});

test("on a Unix socket recovery ends as soon as every client has reconnected or its process is gone", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const lostClient = await harness.connectClient();
  const claimA = makeClaim("a");
  const claimB = makeClaim("b");
  await client.driver.claim(claimA);
  await lostClient.driver.claim(claimB);
  lostClient.isUnreachable = true;
  lostClient.processState = "gone";
  harness.crash();
  await harness.start();
  await harness.clock.advance(1_500);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
  expectHeld(await client.driver.claim(makeClaim("b", { wait: false })));
});

test("a client without claims reconnects too, so that recovery does not wait for it", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const idle = await harness.connectClient();
  const [claimA, claimB] = [makeClaim("a"), makeClaim("b")];
  await client.driver.claim(claimA);
  await idle.driver.claim(claimB);
  await idle.driver.release(toReleases(claimB));
  harness.crash();
  await harness.start();
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
});

test("an idle client stops reconnecting soon after a crash, and at once after a clean shutdown", async () => {
  for (const crashed of [true, false]) {
    const harness = new ServerHarness();
    await harness.start();
    const idle = await harness.connectClient();
    const dials = idle.dials;
    if (crashed) harness.crash();
    else await harness.stop();
    await harness.clock.advance(30_000);
    expect(idle.dials > dials).toBe(crashed);
    const after = idle.dials;
    await harness.clock.advance(600_000);
    expect(idle.dials - after).toBeLessThanOrEqual(1);
  }
});

test("recovery waits for a client over TCP, since the server cannot see that it is gone", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  await client.driver.claim(makeClaim("a"));
  client.isUnreachable = true;
  client.processState = "gone";
  harness.crash();
  await harness.start();
  await harness.clock.advance(29_000);
  expect(harness.inspect().isRecovering).toBe(true);
  await harness.clock.advance(1_100);
  expect(harness.inspect().isRecovering).toBe(false);
});

test("after a reboot recovery waits for the clients of other machines, but not for those of its own", async () => {
  for (const remote of [false, true]) {
    const harness = new ServerHarness({ remote });
    await harness.start();
    const client = await harness.connectClient(!remote);
    await client.driver.claim(makeClaim("a"));
    client.isUnreachable = true;
    harness.crash();
    if (harness.storage !== null) harness.storage.sameBoot = false;
    await harness.start();
    expect(harness.inspect().isRecovering).toBe(remote);
  }
});

test("tokens rise over a crash, although the wall clock was set back", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { driver } = await harness.connectClient();
  const claimA = makeClaim("a");
  const before = expectHeld(await driver.claim(claimA));
  await driver.release(toReleases(claimA));
  harness.crash();
  harness.clock.wallOffsetMs -= 3_600_000;
  await harness.start();
  await harness.clock.advance(31_000);
  const after = expectHeld(await driver.claim(makeClaim("a")));
  expect(after.token).toBeGreaterThan(before.token);
});

test("a queue keeps its order over a crash, although its clients reconnect in another order", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const clients = [
    await harness.connectClient(),
    await harness.connectClient(),
    await harness.connectClient(),
    await harness.connectClient(),
  ] as const;
  const claims = clients.map(() => makeClaim("k"));
  for (const [index, { driver }] of clients.entries()) await driver.claim(claims[index] as (typeof claims)[0]);
  for (const client of clients) client.isUnreachable = true;
  harness.crash();
  await harness.start();
  for (const index of [3, 1, 2, 0]) {
    (clients[index] as HarnessClient).isUnreachable = false;
    await harness.clock.advance(2_500);
  }
  expect(harness.inspect().isRecovering).toBe(false);
  for (const [index, player] of clients.entries()) {
    const claim = claims[index] as (typeof claims)[0];
    expect(await claimState(player, claim)).toMatchObject({ state: "held" });
    if (index < 3)
      expect(await claimState(clients[index + 1] as HarnessClient, claims[index + 1] as typeof claim)).toMatchObject({
        state: "waiting",
      });
    await player.driver.release(toReleases(claim));
  }
});

test("of two conflicting reclaims the higher token wins, in either order", async () => {
  for (const order of [0, 1]) {
    const harness = new ServerHarness();
    await harness.start();
    const lower = await harness.connectClient();
    const higher = await harness.connectClient();
    const claimA = makeClaim("k");
    const claimB = makeClaim("k");
    await lower.driver.claim(claimA);
    // the client with the lower token is cut off and its claim revoked; it does not know
    lower.isUnreachable = true;
    lower.disconnect();
    await flushEventLoop();
    expectHeld(await higher.driver.claim(claimB));
    higher.isUnreachable = true;
    harness.crash();
    await harness.start();
    const [first, second] = order === 0 ? [lower, higher] : [higher, lower];
    first.isUnreachable = false;
    await harness.clock.advance(2_500);
    second.isUnreachable = false;
    await harness.clock.advance(2_500);
    expect(await claimState(higher, claimB)).toMatchObject({ state: "held" });
    expect(await claimState(lower, claimA)).toMatchObject({ state: "none" });
  }
});

test("a client that lost to a higher token learns so during recovery, and renews its other claims by the same call", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const [lower, higher, silentClient] = [
    await harness.connectClient(false),
    await harness.connectClient(false),
    await harness.connectClient(false),
  ];
  const [claimA, other, claimB] = [makeClaim("k"), makeClaim("other"), makeClaim("k")];
  await silentClient.driver.claim(makeClaim("s"));
  await lower.driver.claim(other);
  await lower.driver.claim(claimA);
  // its claim is revoked; it does not know, and will reclaim it beside the later one
  lower.isUnreachable = true;
  lower.disconnect();
  harness.inspect().table.expireNow(claimA.id, 0, { now: harness.clock.now(), micros: 0 });
  expectHeld(await higher.driver.claim(claimB));
  for (const client of [higher, silentClient]) client.isUnreachable = true;
  harness.crash();
  await harness.start();
  lower.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(lower, claimA)).toMatchObject({ state: "held" });
  higher.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(true);
  expect(await lower.driver.renew([claimA, other])).toMatchObject([
    { state: "none", reason: "expired" },
    { state: "held" },
  ]);
});

test("during recovery an unknown claim does not harm the others renewed by the same call", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const [client, silentClient] = [await harness.connectClient(false), await harness.connectClient(false)];
  const [ownClaim, unknown] = [makeClaim("mine"), makeClaim("unknown")];
  await client.driver.claim(ownClaim);
  await silentClient.driver.claim(unknown);
  silentClient.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(2_500);
  expect(harness.inspect().isRecovering).toBe(true);
  const before = harness.inspect().records.get(ownClaim.id)?.expiresAt as number;
  const answers = await client.driver.renew([unknown, ownClaim]);
  expect([answers[0], answers[1]?.state]).toEqual([undefined, "held"]);
  expect(harness.inspect().records.get(ownClaim.id)?.expiresAt).toBeGreaterThan(before);
});

test("a claim whose own lease has expired is not reclaimed", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: 20_000 });
  await client.driver.claim(claimA);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  // nine tenths have passed: the client's deadline is over, although the server would still keep the claim
  await harness.clock.advance(18_050);
  client.isUnreachable = false;
  await harness.clock.advance(1_500);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(await claimState(client, claimA)).toMatchObject({ state: "none" });
});

test("a session claim on a Unix socket is reclaimed after its process was stopped for a minute, if recovery lasts as long", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: "session" });
  await client.driver.claim(claimA);
  client.isUnreachable = true;
  client.processState = "stopped";
  harness.crash();
  await harness.start();
  await harness.clock.advance(28_000);
  client.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
});

test("during recovery a renewal omits unreported claims and answers the others; the release of an unreported claim is remembered", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const sessionClient = await harness.connectClient();
  const claimA = makeClaim("a");
  await client.driver.claim(claimA);
  await sessionClient.driver.claim(makeClaim("b"));
  client.isUnreachable = true;
  sessionClient.isUnreachable = true;
  harness.crash();
  await harness.start();
  const otherClient = await harness.connectClient();
  const reportedClaim = makeClaim("known");
  expect(await otherClient.driver.claim(reportedClaim)).toMatchObject({ state: "waiting" });
  expect(await otherClient.driver.renew([claimA, reportedClaim])).toMatchObject([undefined, { state: "waiting" }]);
  expect(await otherClient.driver.release(toReleases(reportedClaim))).toEqual([true]);
  expect(await otherClient.driver.release(toReleases(claimA))).toEqual([true]);
  client.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(client, claimA)).toMatchObject({ state: "none" });
});

test("a reclaim after recovery is answered none", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("a", { ttlMs: "session" });
  await client.driver.claim(claimA);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(31_000);
  client.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(client, claimA)).toMatchObject({ state: "none" });
});

test("a new longest lease is written before it is granted, and a restart waits for it", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const writes = harness.storage?.writes.length ?? 0;
  await client.driver.claim(makeClaim("usual"));
  expect(harness.storage?.writes.length).toBe(writes);
  expectHeld(await client.driver.claim(makeClaim("a", { ttlMs: 50_000 })));
  expect(harness.storage?.writes.length).toBe(writes + 1);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(50_000);
});

test("a grant beyond the token ceiling waits for the write", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { driver } = await harness.connectClient();
  const { storage } = harness;
  if (storage === null) throw new Error("there is a disk");
  await harness.clock.advance(60_000);
  let open = (): void => undefined;
  storage.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  let isAnswered = false;
  const claim = driver.claim(makeClaim("k")).then((answer) => {
    isAnswered = true;
    return answer;
  });
  await flushEventLoop(40);
  expect(isAnswered).toBe(false);
  open();
  const { token } = expectHeld(await claim);
  expect(token).toBeLessThan(BigInt(JSON.parse((storage.state as string).slice(17)).bound));
});

test("a waiting claim whose token would pass the ceiling is granted once the new ceiling is written", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k");
  const claimB = makeClaim("k", { ttlMs: 50_000 });
  await client.driver.claim(claimA);
  await client.driver.claim(claimB);
  await harness.clock.advance(29_000);
  await client.driver.renew([claimA, claimB]);
  await harness.clock.advance(29_000);
  const floor = BigInt(Math.floor(harness.clock.wall() * 1_000) + 3_600_000_000);
  const claimC = makeClaim("k", { floor });
  await client.driver.claim(claimC);
  await client.driver.release(toReleases(claimA));
  await client.driver.release(toReleases(claimB));
  await flushEventLoop(40);
  expect(countGrants(client, claimB.id)).toBe(1);
  expect(countGrants(client, claimC.id)).toBe(1);
});

test("without a state directory every start waits a minute, and no longer lease is granted", async () => {
  const harness = new ServerHarness({ state: "none" });
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k");
  expect(await client.driver.claim(claimA)).toMatchObject({ state: "waiting" });
  await expect(client.driver.claim(makeClaim("other", { ttlMs: 61_000 }))).rejects.toThrow(/without a state/);
  for (let elapsedMs = 0; elapsedMs < 60; elapsedMs += 10) {
    await client.driver.renew([claimA]);
    expect(countGrants(client, claimA.id)).toBe(0);
    await harness.clock.advance(10_100);
  }
  expect(countGrants(client, claimA.id)).toBe(1);
});

/** Speaks for a client that sends arbitrary frames. */
function openConnection(harness: ServerHarness, session: string): (frames: string) => unknown[][] {
  const { service } = harness;
  if (service === null) throw new Error("the world has started");
  const lines: string[] = [];
  const connection = service.accept(
    { write: (text) => lines.push(text), close: () => undefined },
    { isLocal: true, address: "" },
  );
  connection.receive([JSON.stringify({ hello: { protocol: 1, session } })]);
  return (frames) => {
    lines.length = 0;
    connection.receive([`["${service.runId}",${frames}]`]);
    return lines.flatMap((text) => (JSON.parse(text) as unknown[][]).slice(1));
  };
}

test("a token that no server can have issued is not restored, and reveals nothing", async () => {
  const harness = new ServerHarness();
  await harness.start();
  (await harness.connectClient()).isUnreachable = true;
  const ceiling = BigInt(JSON.parse((harness.storage?.state ?? "").slice(17)).bound);
  harness.storage?.addSession({ id: "x", isLocal: false, label: "", pid: null, pidStart: null, account: "" });
  harness.crash();
  await harness.start();
  const send = openConnection(harness, randomId());
  const was = (token: bigint): string =>
    `["reclaim",1,[[["${randomId()}",["k"],30000],["held","${token}",1,20000]]],false]`;
  const dayMicros = 86_400_000_000n;
  expect(send(was(ceiling + 2n * dayMicros))).toEqual([["ok", 1, [["none"]]]]);
  expect(harness.inspect().recoveryReason).toBe("crash");
  expect(send(was(ceiling - 1n))).toEqual([["ok", 1, [["held", `${ceiling - 1n}`, 1, 20_000]]]]);
});

test("a reclaimed lease longer than any on disk is written before it is restored", async () => {
  const harness = new ServerHarness();
  await harness.start();
  harness.storage?.addSession({ id: "x", isLocal: false, label: "", pid: null, pidStart: null, account: "" });
  harness.crash();
  await harness.start();
  const send = openConnection(harness, randomId());
  expect(send(`["reclaim",1,[[["${randomId()}",["k"],55000],["held","17",1,50000]]],false]`)).toEqual([]);
  await flushEventLoop();
  harness.crash();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(55_000);
});

// Every input gets a typed error or an answer; never a crash, never harm to others.

import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { Clock } from "../../src/util/clock.ts";
import { systemClock } from "../../src/util/clock.ts";
import { randomId } from "../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { toReleases } from "../support/releases.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../support/server-fixture.ts";
import { createFrameGenerator, FRAME_COUNT, SEED } from "./frame-generator.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** Sockets get a hundredth of the bulk test's inputs. */
const CONNECTION_COUNT = Math.min(FRAME_COUNT / 100, 20_000);

/** The machine's clock, which can be set forward. */
function offsetClock(): { readonly clock: Clock; advance(ms: number): void } {
  let offsetMs = 0;
  const timer: Clock["timer"] = (run) => {
    const real = systemClock.timer(run);
    return { ...real, set: (due) => real.set(due === null ? null : due - offsetMs) };
  };
  const clock = { ...systemClock, now: () => systemClock.now() + offsetMs, timer };
  return {
    clock,
    advance: (ms) => {
      offsetMs += ms;
    },
  };
}

test(`a live server survives fuzzed connections, cut at any byte (seed ${SEED})`, async () => {
  const random = seededRandom(SEED + 2);
  const shiftedClock = offsetClock();
  const it = await startServer({ clock: shiftedClock.clock });
  // in its first minute a server trusts a client that reports a later state
  shiftedClock.advance(60_000);
  const { driver } = await openClient(it.addresses[0] as string);
  const fuzz = createFrameGenerator(random, [100, 500, "session"]);
  const open = new Set<Socket>();
  for (let turn = 0; turn < CONNECTION_COUNT; turn++) {
    fuzz.nextFrame();
    const socket = connect({ path: it.path });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    const hello = Buffer.from(`{"hello":{"protocol":1,"session":"${randomId()}"}}\n`);
    if (random.chance(0.9)) socket.write(hello);
    else socket.write(hello.subarray(0, random.int(hello.length)));
    const lines = Array.from({ length: random.int(5) }, () => fuzz.nextLine(it.runId));
    for (const bytes of lines) socket.write(bytes);
    if (random.chance(0.5)) socket.destroy();
    else socket.end();
    if (turn % 20 !== 0) continue;
    const claim = makeClaim("healthy");
    expectHeld(await driver.claim(claim));
    expect(await driver.release(toReleases(claim))).toEqual([true]);
  }
  await until(() => open.size === 0, { within: 5_000, what: "the end of all connections" });
  await until(() => it.stats().sessions === 1, { within: 5_000, what: "the end of all sessions" });
  // some were detached, and last as long as their leases
  await until(() => it.stats().claims === 0, { within: 5_000, what: "the end of all claims" });
  expect(it.logged.filter((line) => !/^a lock was (revoked|taken away)/.test(line))).toEqual([]);
}, 600_000);

test("a line that is too long, and one that never ends, cost their connection only", async () => {
  const it = await startServer();
  for (const [first, bytes] of [
    [true, 5_000],
    [false, 300_000],
  ] as const) {
    const socket = connect({ path: it.path });
    let receivedText = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      receivedText += text;
    });
    socket.on("error", () => undefined);
    if (!first) socket.write(`{"hello":{"protocol":1,"session":"${randomId()}"}}\n`);
    await until(() => first || receivedText.includes("\n"), { within: 1_000, what: "the hello" });
    socket.write(`["${"x".repeat(bytes)}`);
    await until(() => socket.destroyed || socket.readableEnded, { within: 2_000, what: "the end of the connection" });
    expect(receivedText).toContain("a line is longer than");
    socket.destroy();
  }
  expect(it.logged).toEqual([]);
});

test("a client that never reads is no longer read from, and harms no other client", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  const socket = connect({ path: it.path });
  socket.on("error", () => undefined);
  socket.write(`{"hello":{"protocol":1,"session":"${randomId()}"}}\n`);
  socket.pause();
  const pings = `["${it.runId}"${`,["ping",1]`.repeat(5_000)}]\n`;
  for (let turn = 0; turn < 200; turn++) socket.write(pings);
  await until(() => socket.writableLength > 1_000_000, { within: 2_000, what: "the server to stop reading" });
  const claim = makeClaim("healthy");
  expectHeld(await driver.claim(claim));
  socket.destroy();
});

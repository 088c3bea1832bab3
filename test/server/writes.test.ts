// When answers leave: early to the only client there is, together while others are to be served.

import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { encodeHello, PROTOCOL } from "../../src/protocol/hello.ts";
import type { Link } from "../../src/server/link.ts";
import { cleanUp } from "./support.ts";
import { World } from "./world.ts";

cleanUp();

/** Whose lines were written, in order. */
const told: Link[] = [];

/** Pings whose answers are 2 to 3 KiB. */
const PINGS = 200;

function speaker(world: World): { readonly link: Link; readonly written: string[]; ping(): number } {
  const { hub } = world;
  if (hub === null) throw new Error("the world has started");
  const written: string[] = [];
  const write = (text: string): void => {
    written.push(text);
    told.push(link);
  };
  const link = hub.accept({ write, close: () => undefined }, { local: false, address: "" });
  const who = {
    protocol: PROTOCOL,
    version: "",
    label: "",
    session: newId(),
    tether: false,
    pid: null,
    pidStart: null,
  };
  link.lines([encodeHello(who).trim()]);
  const ping = (): number => {
    written.length = 0;
    link.lines([JSON.stringify([hub.start, ...Array.from({ length: PINGS }, (_, n) => ["ping", n])])]);
    const answers = written.flatMap((line) => (JSON.parse(line) as unknown[]).slice(1));
    expect(answers).toEqual(Array.from({ length: PINGS }, (_, n) => ["ok", n, []]));
    return written.length;
  };
  return { link, written, ping };
}

test("the answers of a long line leave in parts while its client alone says anything, and in one while others do", async () => {
  const world = new World();
  await world.start();
  const one = speaker(world);
  expect(one.ping()).toBeGreaterThan(1);
  const other = speaker(world);
  expect(one.ping()).toBe(1);
  expect(other.ping()).toBe(1);
  expect(one.ping()).toBe(1);
  other.link.ended();
  expect(one.ping()).toBeGreaterThan(1);
  expect(one.ping()).toBeGreaterThan(1);
});

test("nothing is kept of the last to speak when it has gone", async () => {
  const world = new World();
  await world.start();
  const { link } = speaker(world);
  expect(world.hub?.speaker).toBe(link);
  link.ended();
  expect(world.hub?.speaker).toBeNull();
});

test("who is granted a lock is written to before who let go of it", async () => {
  const world = new World();
  await world.start();
  const [holder, waiter] = [speaker(world), speaker(world)];
  const [held, waiting] = [newId(), newId()];
  const say = (who: typeof holder, ...frame: unknown[]): void =>
    who.link.lines([JSON.stringify([world.hub?.start, frame])]);
  say(holder, "claim", 1, held, ["key"], 30_000);
  say(waiter, "claim", 1, waiting, ["key"], 30_000);
  const order = told.length;
  say(holder, "release", 2, [held]);
  expect(told.slice(order).map((link) => link === waiter.link)).toEqual([true, false]);
});

// Events as they happen, over HTTP: in order, resumed where a stream ended, never more in memory than a reader may leave unread.

import { connect } from "node:net";
import { expect, test } from "vitest";
import { document } from "../../src/server/http/openapi.ts";
import type { FakeClock } from "../support/fake-clock.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { leakCheck } from "../support/leak-check.ts";
import { until } from "../support/wait-for.ts";
import { schemaFaults } from "./schema.ts";
import { ask, begin, cleanUp, later, post, running } from "./support.ts";

leakCheck();
cleanUp();

// biome-ignore lint/suspicious/noExplicitAny: a document
const api = document("0.1.0") as any;

interface Stream {
  /** Of each event that has come: what, and its data. */
  readonly events: { readonly id: string; readonly event: string; readonly data: Record<string, unknown> }[];
  ended(): boolean;
  close(): void;
}

async function follow(url: string, path: string, lastId?: string): Promise<Stream> {
  const headers = lastId === undefined ? {} : { "last-event-id": lastId };
  const answer = await begin(url, path, { headers });
  expect(answer.statusCode).toBe(200);
  later(() => {
    answer.destroy();
  });
  const events: Stream["events"] = [];
  let text = "";
  answer.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
    const blocks = text.split("\n\n");
    text = blocks.pop() as string;
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (fields.event !== undefined) events.push({ ...fields, data: JSON.parse(fields.data) } as never);
    }
  });
  answer.on("error", () => undefined);
  return { events, ended: () => answer.complete || answer.destroyed, close: () => answer.destroy() };
}

const SOON = { within: 3_000, what: "the events" };
/** Settles when so many events have come; time passes until then, a little. */
async function told(clock: FakeClock, stream: Stream, count: number): Promise<void> {
  const all = async (): Promise<boolean> => {
    await clock.pass(5);
    return stream.events.length === count;
  };
  await until(all, { within: 20_000, what: `${count} events` });
}

const kinds = ({ events }: Stream): string[] => events.map(({ event }) => event);

test("what happens to a lock is told in order, as the document says, without its id", async () => {
  const { url } = await running();
  const stream = await follow(url, "/events");
  const held = await post(url, "/v1/claims", { key: "k", label: "ana" });
  await post(url, "/v1/claims", { key: "k", wait: 1 });
  await post(url, "/v1/locks/revoke", { key: "k", token: held.json.token, reason: "its host is gone" });
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  await until(() => stream.events.length >= 4, SOON);
  expect(kinds(stream).slice(0, 4)).toEqual(["granted", "waiting", "revoked", "released"]);
  for (const { data } of stream.events) expect(schemaFaults(data, api.components.schemas.Event, api)).toEqual([]);
  expect(stream.events[0]?.data).toMatchObject({
    keys: ["k"],
    label: "ana",
    tag: held.json.tag,
    token: held.json.token,
  });
  expect(stream.events[2]?.data).toMatchObject({ reason: "its host is gone" });
  const id = /"([a-z2-7]{26})"/.exec(Buffer.from(held.json.reference.split(".")[1], "base64url").toString())?.[1];
  expect(JSON.stringify(stream.events)).not.toContain(id);
});

test("a stream tells of keys with its prefix only", async () => {
  const { url } = await running();
  const stream = await follow(url, "/events?prefix=a/");
  for (const key of ["b/1", "a/1", "ab", "a/2"]) await post(url, "/v1/claims", { key });
  await until(() => stream.events.length >= 2, SOON);
  expect(stream.events.map(({ data }) => data.keys)).toEqual([["a/1"], ["a/2"]]);
});

test("a stream goes on where another ended; one of an earlier run of the server learns of the gap", async () => {
  const { url } = await running();
  const first = await follow(url, "/events");
  await post(url, "/v1/claims", { key: "1" });
  await until(() => first.events.length === 1, SOON);
  first.close();
  await post(url, "/v1/claims", { key: "2" });
  await post(url, "/v1/claims", { key: "3" });
  const second = await follow(url, "/events", first.events[0]?.id as string);
  await until(() => second.events.length === 2, SOON);
  expect(second.events.map(({ data }) => data.keys)).toEqual([["2"], ["3"]]);
  const other = await follow(url, "/events", "aaaaaaaa-7");
  await until(() => other.events.length === 4, SOON);
  expect(kinds(other)).toEqual(["gap", "granted", "granted", "granted"]);
});

test("streamMs: a stream ends after its time, and its reader misses nothing by coming back", async () => {
  const clock = fakeClock();
  const { url } = await running({ clock, limits: { streamMs: 60_000 } });
  const first = await follow(url, "/events");
  await post(url, "/v1/claims", { key: "1", ttl: "1h" });
  await told(clock, first, 1);
  await clock.pass(50_000);
  expect(first.ended()).toBe(false);
  await clock.pass(10_100);
  await until(first.ended, SOON);
  await post(url, "/v1/claims", { key: "2", ttl: "1h" });
  const second = await follow(url, "/events", first.events[0]?.id as string);
  await told(clock, second, 1);
  expect(second.events[0]?.data.keys).toEqual(["2"]);
});

test("a reader of whom nothing is heard any more is given up at the second pulse, long before its share of memory is full", async () => {
  const clock = fakeClock();
  const it = await running({ clock, limits: { unreadBytes: 1_073_741_824 } });
  const reader = await follow(it.url, "/events");
  const { port, host } = new URL(it.url);
  const dead = connect({ host: "127.0.0.1", port: Number(port) });
  later(() => {
    dead.destroy();
  });
  dead.on("error", () => undefined);
  dead.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  dead.pause();
  const subscribers = async (): Promise<string | undefined> =>
    /^holdfast_subscribers (\d+)$/m.exec((await ask(it.url, "/metrics")).text)?.[1];
  await until(async () => (await subscribers()) === "2", SOON);
  // beyond what the system's own buffers take
  const keys = Array.from({ length: 100 }, (_, at) => `${"k".repeat(480)}${at}`);
  for (let round = 0; round < 150; round++) {
    const held = await post(it.url, "/v1/claims", { keys });
    await post(it.url, "/v1/claims/release", { reference: held.json.reference });
    await clock.pass(5);
  }
  await told(clock, reader, 300);
  expect(await subscribers()).toBe("2");
  await clock.pass(15_100);
  await clock.pass(15_100);
  await until(async () => (await subscribers()) === "1", SOON);
  expect(reader.ended()).toBe(false);
}, 60_000);

test("a stream ends with the server", async () => {
  const it = await running();
  const stream = await follow(it.url, "/events");
  await it.close();
  await until(stream.ended, { within: 3_000, what: "its end" });
});

test("a reader that does not read is cut, and others are told all the same", async () => {
  const it = await running({ limits: { unreadBytes: 65_536 } });
  const reader = await follow(it.url, "/events");
  const { port, host } = new URL(it.url);
  const lazy = connect({ host: "127.0.0.1", port: Number(port) });
  later(() => {
    lazy.destroy();
  });
  let ended = false;
  lazy.on("close", () => {
    ended = true;
  });
  lazy.on("error", () => undefined);
  lazy.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  lazy.pause();
  // the system's own buffers take some megabytes before anything waits here
  const label = "x".repeat(256);
  const keys = Array.from({ length: 100 }, (_, at) => `${"k".repeat(480)}${at}`);
  let rounds = 0;
  let probed = false;
  while (!probed && rounds++ < 400) {
    const held = await post(it.url, "/v1/claims", { keys, label, ttl: "1s" });
    await post(it.url, "/v1/claims/release", { reference: held.json.reference });
    if (rounds % 50 !== 0) continue;
    // a connection that the server has reset shows it when it is written to
    lazy.write("\r\n");
    await new Promise((resolve) => setTimeout(resolve, 20));
    probed = ended || lazy.destroyed;
  }
  expect(probed).toBe(true);
  await until(() => reader.events.length === rounds * 2, { within: 10_000, what: "all events" });
}, 60_000);

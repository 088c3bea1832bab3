// Live events over HTTP: in order, resumable after a stream ended, with bounded memory for a slow reader.

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { createOpenApiDocument } from "../../../src/gateway/http/openapi.ts";
import { MAX_UNREAD_BYTES } from "../../../src/server/connection/connection.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import {
  cleanUpAfterEach,
  onCleanup,
  openRequest,
  post,
  request,
  startHttpServer,
} from "../../support/http-fixture.ts";
import { findSchemaFaults } from "../../support/json-schema.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

// biome-ignore lint/suspicious/noExplicitAny: a document
const api = createOpenApiDocument("0.1.0") as any;

interface EventStreamReader {
  /** The name and the data of each event received. */
  readonly events: { readonly id: string; readonly event: string; readonly data: Record<string, unknown> }[];
  ended(): boolean;
  close(): void;
}

async function openStream(url: string, path: string, lastId?: string): Promise<EventStreamReader> {
  const headers = lastId === undefined ? {} : { "last-event-id": lastId };
  const answer = await openRequest(url, path, { headers });
  expect(answer.statusCode).toBe(200);
  onCleanup(() => {
    answer.destroy();
  });
  const events: EventStreamReader["events"] = [];
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

const SOON_BOUND = { within: 3_000, what: "the events" };
/** Settles when so many events have arrived; the fake clock moves on a little until then. */
async function waitForEvents(clock: FakeClock, eventStreamReader: EventStreamReader, count: number): Promise<void> {
  const all = async (): Promise<boolean> => {
    await clock.advance(5);
    return eventStreamReader.events.length === count;
  };
  await until(all, { within: 20_000, what: `${count} events` });
}

const eventKinds = ({ events }: EventStreamReader): string[] => events.map(({ event }) => event);

test("the events of a lock are streamed in order, as documented, without its id", async () => {
  const { url } = await startHttpServer();
  const eventStreamReader = await openStream(url, "/events");
  const held = await post(url, "/v1/claims", { key: "k", label: "ana" });
  await post(url, "/v1/claims", { key: "k", wait: 1 });
  await post(url, "/v1/locks/revoke", { key: "k", token: held.json.token, reason: "its host is gone" });
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  await until(() => eventStreamReader.events.length >= 4, SOON_BOUND);
  expect(eventKinds(eventStreamReader).slice(0, 4)).toEqual(["granted", "waiting", "revoked", "released"]);
  for (const { data } of eventStreamReader.events)
    expect(findSchemaFaults(data, api.components.schemas.Event, api)).toEqual([]);
  expect(eventStreamReader.events[0]?.data).toMatchObject({
    keys: ["k"],
    label: "ana",
    tag: held.json.tag,
    token: held.json.token,
  });
  expect(eventStreamReader.events[2]?.data).toMatchObject({ reason: "its host is gone" });
  const id = /"([a-z2-7]{26})"/.exec(Buffer.from(held.json.reference.split(".")[1], "base64url").toString())?.[1];
  expect(JSON.stringify(eventStreamReader.events)).not.toContain(id);
});

test("a stream has only the events of keys with its prefix", async () => {
  const { url } = await startHttpServer();
  const eventStreamReader = await openStream(url, "/events?prefix=a/");
  for (const key of ["b/1", "a/1", "ab", "a/2"]) await post(url, "/v1/claims", { key });
  await until(() => eventStreamReader.events.length >= 2, SOON_BOUND);
  expect(eventStreamReader.events.map(({ data }) => data.keys)).toEqual([["a/1"], ["a/2"]]);
});

test("a stream continues where an earlier one ended; a stream of an earlier server run reports the gap", async () => {
  const { url } = await startHttpServer();
  const first = await openStream(url, "/events");
  await post(url, "/v1/claims", { key: "1" });
  await until(() => first.events.length === 1, SOON_BOUND);
  first.close();
  await post(url, "/v1/claims", { key: "2" });
  await post(url, "/v1/claims", { key: "3" });
  const second = await openStream(url, "/events", first.events[0]?.id as string);
  await until(() => second.events.length === 2, SOON_BOUND);
  expect(second.events.map(({ data }) => data.keys)).toEqual([["2"], ["3"]]);
  const otherEventStreamReader = await openStream(url, "/events", "aaaaaaaa-7");
  await until(() => otherEventStreamReader.events.length === 4, SOON_BOUND);
  expect(eventKinds(otherEventStreamReader)).toEqual(["gap", "granted", "granted", "granted"]);
});

test("a stream ends after its time, and a reader that reconnects misses no event", async () => {
  const clock = new FakeClock();
  const { url } = await startHttpServer({ clock });
  const first = await openStream(url, "/events");
  await post(url, "/v1/claims", { key: "1", ttl: "1d" });
  await waitForEvents(clock, first, 1);
  await clock.advance(3_590_000);
  expect(first.ended()).toBe(false);
  await clock.advance(10_100);
  await until(first.ended, SOON_BOUND);
  await post(url, "/v1/claims", { key: "2", ttl: "1h" });
  const second = await openStream(url, "/events", first.events[0]?.id as string);
  await waitForEvents(clock, second, 1);
  expect(second.events[0]?.data.keys).toEqual(["2"]);
});

test("a dead reader is dropped at the second heartbeat, long before its buffer is full", async () => {
  const clock = new FakeClock();
  const server = await startHttpServer({ clock });
  const served: Socket[] = [];
  const onRequest = (message: unknown): void => {
    const { request, socket } = message as { readonly request: IncomingMessage; readonly socket: Socket };
    if (request.url === "/events") served.push(socket);
  };
  subscribe("http.server.request.start", onRequest);
  onCleanup(() => void unsubscribe("http.server.request.start", onRequest));
  const reader = await openStream(server.url, "/events");
  const { port, host } = new URL(server.url);
  const dead = connect({ host: "127.0.0.1", port: Number(port) });
  onCleanup(() => {
    dead.destroy();
  });
  dead.on("error", () => undefined);
  dead.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  dead.pause();
  const subscribers = async (): Promise<string | undefined> =>
    /^holdfast_subscribers (\d+)$/m.exec((await request(server.url, "/metrics")).text)?.[1];
  await until(async () => (await subscribers()) === "2", SOON_BOUND);
  const [, deadSocket] = served as [Socket, Socket];
  const keys = Array.from({ length: 100 }, (_, index) => `${"k".repeat(480)}${index}`);
  // beyond what the kernel's buffers take
  let rounds = 0;
  for (; deadSocket.writableLength < 200_000; rounds++) {
    const held = await post(server.url, "/v1/claims", { keys });
    await post(server.url, "/v1/claims/release", { reference: held.json.reference });
    await clock.advance(5);
  }
  await waitForEvents(clock, reader, 2 * rounds);
  expect(await subscribers()).toBe("2");
  expect(deadSocket.writableLength).toBeLessThan(MAX_UNREAD_BYTES / 2);
  await clock.advance(15_100);
  await clock.advance(15_100);
  await until(async () => (await subscribers()) === "1", SOON_BOUND);
  expect(reader.ended()).toBe(false);
}, 60_000);

test("a stream ends with the server", async () => {
  const server = await startHttpServer();
  const eventStreamReader = await openStream(server.url, "/events");
  await server.close();
  await expect.poll(eventStreamReader.ended, { timeout: 3_000 }).toBe(true);
});

test("a reader that does not read is disconnected, and other readers still get their events", async () => {
  const server = await startHttpServer();
  const reader = await openStream(server.url, "/events");
  const { port, host } = new URL(server.url);
  const slowSocket = connect({ host: "127.0.0.1", port: Number(port) });
  onCleanup(() => {
    slowSocket.destroy();
  });
  let ended = false;
  slowSocket.on("close", () => {
    ended = true;
  });
  slowSocket.on("error", () => undefined);
  slowSocket.write(`GET /events HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  slowSocket.pause();
  // the kernel's buffers take some megabytes before anything waits here
  const label = "x".repeat(256);
  const keys = Array.from({ length: 100 }, (_, index) => `${"k".repeat(480)}${index}`);
  let rounds = 0;
  let probed = false;
  while (!probed && rounds++ < 400) {
    const held = await post(server.url, "/v1/claims", { keys, label, ttl: "1s" });
    await post(server.url, "/v1/claims/release", { reference: held.json.reference });
    if (rounds % 50 !== 0) continue;
    // a connection that the server has reset reports it at a write
    slowSocket.write("\r\n");
    await new Promise((resolve) => setTimeout(resolve, 20));
    probed = ended || slowSocket.destroyed;
  }
  expect(probed).toBe(true);
  await until(() => reader.events.length === rounds * 2, { within: 10_000, what: "all events" });
}, 60_000);

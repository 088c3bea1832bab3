// The frames for people, through real servers: what happened, live and before, and what a server says of itself.

import { expect, test } from "vitest";
import { memory } from "../../src/drivers/memory.ts";
import { server } from "../../src/drivers/server/driver.ts";
import type { ToolLink, Watcher } from "../../src/drivers/server/tool-link.ts";
import { openTools } from "../../src/drivers/server/tool-link.ts";
import { newId } from "../../src/ids.ts";
import { VERSION } from "../../src/protocol/hello.ts";
import type { ToldEvent } from "../../src/protocol/tools.ts";
import { leakCheck } from "../support/leak-check.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import { until } from "../support/wait-for.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, client, held, later, running } from "./support.ts";

leakCheck();
cleanUp();

/** The tools of the server at an address. */
async function tools(address: string, credential?: string): Promise<ToolLink> {
  const [, host = "", port = ""] = /^tcp:\/\/(.*):(\d+)$/.exec(address) ?? [];
  const where = address.startsWith("unix:") ? { path: address.slice(5) } : { host, port: Number(port) };
  const driver = server({ ...where, ...(credential !== undefined && { credential }) });
  later(() => driver.close());
  const link = (await openTools(driver)) as ToolLink;
  later(() => link.close());
  return link;
}

/** A watch that writes down what it is told. */
function watching(link: ToolLink, prefix: string): { readonly events: ToldEvent[]; readonly told: string[] } {
  const events: ToldEvent[] = [];
  const told: string[] = [];
  const watcher: Watcher = {
    events(some, gap) {
      events.push(...some);
      if (gap) told.push("gap");
    },
    up: (_, restarted) => told.push(restarted ? "restarted" : "up"),
    down: () => told.push("down"),
    refused: ({ message }) => told.push(message),
  };
  link.watch(prefix, watcher);
  return { events, told };
}

async function raw(address: string, more: Readonly<Record<string, unknown>> = {}): Promise<RawClient> {
  const it = await RawClient.open(rawAddress(address), more);
  later(() => it.end());
  return it;
}

test("history tells the last events of a key, oldest first, without ids", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const { driver } = await client(address);
  const [a, b] = [claimOf("k", { label: "ana" }), claimOf("k", { label: "bob" })];
  const { token } = held(await driver.claim(a));
  await driver.claim(b);
  await driver.revoke?.([{ key: "k", token, now: false, reason: "stuck" }]);
  await driver.release([a, b]);
  const link = await tools(address);
  const events = await link.history("k", 10);
  expect(events.map(({ kind, label }) => `${kind} ${label}`)).toEqual([
    "granted ana",
    "waiting bob",
    "revoked ana",
    "released ana",
    "granted bob",
    "released bob",
  ]);
  expect(events[2]).toMatchObject({ token, operator: "", reason: "stuck", keys: ["k"], by: "" });
  expect(await link.history("k", 2)).toEqual(events.slice(4));
  expect(await link.history("other", 10)).toEqual([]);
  for (const { id } of [a, b]) expect(JSON.stringify(events, (_, value) => String(value))).not.toContain(id);
});

test("a watch tells what happens below its prefix, and goes on over a restart of the server", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const { driver, pushes } = await client(address);
  const { events, told } = watching(await tools(address), "a/");
  await until(() => told.length > 0, { within: 2_000, what: "the watch" });
  const [mine, other] = [claimOf("a/1"), claimOf("b/1")];
  await driver.claim(other);
  await driver.claim(mine);
  await until(() => events.length > 0, { within: 2_000, what: "the first event" });
  expect(events).toMatchObject([{ kind: "granted", keys: ["a/1"] }]);
  await it.close();
  await until(() => told.includes("down"), { within: 2_000, what: "the end of the server" });
  await running({ in: it.dir, listen: `unix:${it.path}` });
  await until(() => told.includes("restarted"), { within: 5_000, what: "the server's return" });
  // the client has a connection and a backoff of its own
  await until(() => pushes.all.some(({ id }) => id === null), { within: 5_000, what: "the client's return" });
  await driver.release([mine, other]);
  await until(() => events.some(({ kind }) => kind === "released"), { within: 2_000, what: "the release" });
  expect(events.map(({ keys }) => keys)).not.toContainEqual(["b/1"]);
  expect(told).toEqual(["up", "down", "restarted"]);
});

test("what a credential may not inspect is told by none of the frames", async () => {
  const [ana, ben] = [known("ana", "a/"), known("ben", "b/", ["acquire"])];
  const it = await running({ access: accessFor(ana, ben), listen: "tcp://127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const { driver } = await client(address, { credential: ben.credential });
  const first = await tools(address, ana.credential);
  const { events, told } = watching(first, "");
  await until(() => told.length > 0, { within: 2_000, what: "the watch" });
  await driver.claim(claimOf("b/1"));
  const mine = await client(address, { credential: ana.credential });
  await mine.driver.claim(claimOf("a/1"));
  await until(() => events.length > 0, { within: 2_000, what: "the event of its own" });
  expect(events).toMatchObject([{ keys: ["a/1"], by: "ana" }]);
  await expect(first.history("b/1", 10)).rejects.toMatchObject({ code: "DRIVER_FATAL" });
  const second = await tools(address, ben.credential);
  await expect(second.history("b/1", 10)).rejects.toMatchObject({ code: "DRIVER_FATAL" });
  expect(await first.info("a/")).toMatchObject({ account: "ana", rights: ["acquire", "inspect", "force", "admin"] });
  expect(await first.info("b/")).toMatchObject({ account: "ana", rights: [] });
  // how busy the server is, is nobody's business who may not see everything
  expect(await first.info("")).not.toHaveProperty("load");
});

test("a server says what it is, and how much it has to do", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const { driver } = await client(address);
  await driver.claim(claimOf("k"));
  await driver.claim(claimOf("k"));
  const before = Date.now();
  const info = await (await tools(address)).info("k");
  expect(info).toMatchObject({
    version: VERSION,
    protocol: 1,
    start: it.start,
    reclaimMs: 0,
    why: "",
    store: "table",
    account: "",
    rights: ["acquire", "inspect", "force", "admin"],
    load: { connections: 2, sessions: 2, held: 1, waiting: 1 },
  });
  expect(info.wallMs).toBeGreaterThanOrEqual(before - 1);
  expect(info.wallMs).toBeLessThanOrEqual(Date.now() + 1);
});

test("a server in front of another store tells what passes through it", async () => {
  const it = await running({ driver: memory() });
  const address = it.addresses[0] as string;
  const { driver } = await client(address);
  const link = await tools(address);
  const [a, b] = [claimOf("k"), claimOf("k")];
  const { token } = held(await driver.claim(a));
  await driver.claim(b);
  await driver.revoke?.([{ key: "k", token, now: false, reason: "stuck" }]);
  expect(await link.info("")).toMatchObject({ store: "memory", load: { held: 1, waiting: 1 } });
  await driver.release([a]);
  await until(async () => (await link.history("k", 9)).length === 5, { within: 2_000, what: "the grant" });
  const events = await link.history("k", 9);
  expect(events.map(({ kind }) => kind)).toEqual(["granted", "waiting", "revoked", "released", "granted"]);
  expect(events[2]).toMatchObject({ token, reason: "stuck" });
});

test("behind a driver that is no server of ours there are no tools", async () => {
  expect(await openTools(memory())).toBeNull();
});

test("malformed frames of the tools end the connection; too many watches only fail their call", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const bad = ['["history",1,7,1]', '["history",1,"k",-1]', '["watch",1]', '["watch",1,"",-1]', '["info",1,7]'];
  for (const frame of [...bad, '["unwatch",1,"x"]']) {
    const one = await raw(address);
    one.say(frame);
    await one.closed();
    expect(one.refusal).toBe("PROTOCOL");
  }
  const one = await raw(address);
  for (let watch = 0; watch < 16; watch++) await one.call("watch", "");
  await expect(one.call("watch", "")).rejects.toThrow("LIMIT: at most 16 watches on a connection");
  expect([await one.call("unwatch", 3), await one.call("unwatch", 3), await one.call("watch", "")]).toEqual([1, 0, 0]);
});

test("subscribersPerAccount: one account, by whichever port and however many connections, leaves room to others", async () => {
  const [a, b] = [known("a", "a/"), known("b", "b/")];
  const limits = { subscribersPerAccount: 3 };
  const it = await running({ access: accessFor(a, b), limits, http: "127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const as = ({ credential }: typeof a) => raw(address, { credential });
  const stream = ({ credential }: typeof a, signal: AbortSignal) =>
    fetch(`${it.httpAddress}/events`, { headers: { authorization: `Bearer ${credential}` }, signal });
  const reading = new AbortController();
  later(() => reading.abort());
  expect((await stream(a, reading.signal)).status).toBe(200);
  const first = await as(a);
  await first.call("watch", "");
  await first.call("watch", "");
  const message = "at most 3 of one account may follow the events";
  await expect((await as(a)).call("watch", "")).rejects.toThrow(`LIMIT: ${message}`);
  const refused = await stream(a, reading.signal);
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({ code: "LIMIT", reason: "full", detail: message });
  const other = await as(b);
  for (let watch = 0; watch < 3; watch++) await other.call("watch", "");
  // when one goes there is room again
  await first.call("unwatch", 1);
  expect((await stream(a, reading.signal)).status).toBe(200);
});

test("subscribersPerAccount: where nobody is asked who he is there is no account", async () => {
  const it = await running({ limits: { subscribersPerAccount: 1 } });
  const one = await raw(it.addresses[0] as string);
  for (let watch = 0; watch < 3; watch++) await one.call("watch", "");
});

test("a watcher that has gone is followed by nobody", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const one = await raw(address);
  await one.call("watch", "");
  const { driver } = await client(address);
  await driver.claim(claimOf("k", { id: newId() }));
  one.end();
  const link = await tools(address);
  await until(async () => (await link.info("")).load?.connections === 2, { within: 2_000, what: "its end" });
  await driver.claim(claimOf("other"));
  expect(await link.history("other", 1)).toHaveLength(1);
});

test("who asks for the histories of thousands of keys at once has some of them; others are served meanwhile", async () => {
  const it = await running();
  const address = it.addresses[0] as string;
  const [busy, other] = [await raw(address), await raw(address)];
  // all that is remembered is looked through for each
  for (let n = 0; n < 1_000; n++) busy.say(`["claim",${n},"${newId()}",["k${n}"],30000]`);
  const many = 5_000;
  busy.say(...Array.from({ length: many }, (_, n) => `["history",${n + 10_000},"none",10]`));
  const [, token] = await other.call("claim", newId(), ["mine"], 30_000);
  expect(token).toBeDefined();
  expect(await other.call("history", "mine", 10)).toHaveLength(1);
  const answers = () => busy.unexpected.filter(([, n]) => (n as number) >= 10_000);
  await until(() => answers().length === many, { within: 20_000, what: "all answers" });
  const refused = answers().filter(([kind, , code]) => kind === "error" && code === "LIMIT").length;
  expect(refused).toBeGreaterThan(many / 2);
  // what waited is answered, and the connection goes on
  const told = answers().filter(([kind]) => kind === "ok").length;
  expect(told).toBe(many - refused);
  expect(told).toBeGreaterThanOrEqual(16);
  expect(await busy.call("history", "k1", 10)).toHaveLength(1);
});

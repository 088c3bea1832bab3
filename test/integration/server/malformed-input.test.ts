// The malformed inputs, sent to a server over a socket: each has a typed answer, no other client notices, the log contains
// none of it, and nothing of it remains.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { COVERED_ELSEWHERE, MALFORMED_BYTES, MALFORMED_KEYS, MALFORMED_TERMS } from "../../support/malformed-inputs.ts";
import type { RawAddress } from "../../support/raw-client.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";

checkLeaksAfterEach();

const folder = mkdtempSync(join(tmpdir(), "holdfast-bad-"));
const logged: string[] = [];
let server: Server;
let address: RawAddress;
let otherClient: RawClient;
let othersClaim = "";

beforeAll(async () => {
  const log = (message: string): void => void logged.push(message);
  server = await serve({ listen: "holdfast://127.0.0.1:0", state: join(folder, "state"), log });
  address = parseRawAddress(server.addresses[0] as string);
});

afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

beforeEach(async () => {
  otherClient = await RawClient.open(address);
  othersClaim = randomId();
  expect((await otherClient.claim(othersClaim, "the other's"))[0]).toBe("held");
});

afterEach(async () => {
  // existing claims stay, and new clients are admitted
  expect(await otherClient.call("renew", [othersClaim])).toMatchObject([expect.arrayContaining(["held"])]);
  const next = await RawClient.open(address);
  const id = randomId();
  expect((await next.claim(id, "free", 1_000, { wait: false }))[0]).toBe("held");
  await next.release(id);
  await otherClient.release(othersClaim);
  // nothing of the input remains
  expect(server.stats().claims).toBe(0);
  expect(logged).toEqual([]);
  next.end();
  otherClient.end();
});

/** "held", the code of the error, or "closed". */
async function actualOutcome(client: RawClient, hold: string, otherTerms: string, id = randomId()): Promise<string> {
  const before = client.lines.length;
  client.send(`["claim",999,"${id}",[${hold}],${otherTerms}]`);
  const pinged = client.call("ping").then(
    () => "alive",
    () => "closed",
  );
  if ((await pinged) === "alive") {
    // a claim that must be persisted is answered later than a ping
    await until(() => client.unexpectedLines.length > 0, { within: 5_000, what: "the answer to the claim" });
    return refusalCode(client);
  }
  expect(client.refusal).toBe("PROTOCOL");
  expect(client.lines.length).toBe(before + 1);
  return "closed";
}

function refusalCode(client: RawClient): string {
  const [kind, , what] = client.unexpectedLines.at(-1) ?? [];
  return kind === "ok" ? String((what as readonly unknown[])[0]) : String(what);
}

describe("keys", () => {
  test.each(MALFORMED_KEYS)("$what is $outcome", async ({ keys, outcome }) => {
    const client = await RawClient.open(address);
    const ids = keys.map(() => randomId());
    for (const [index, key] of keys.entries()) {
      const actual = await actualOutcome(client, JSON.stringify(key), "1000", ids[index]);
      expect(actual).toBe(outcome === "apart" ? "held" : outcome);
    }
    if (outcome !== "closed") await client.call("release", ids);
    client.end();
  });
});

describe("numbers and options", () => {
  test.each(MALFORMED_TERMS)("$what is $outcome", async ({ hold, rest, outcome }) => {
    const client = await RawClient.open(address);
    const id = randomId();
    expect(await actualOutcome(client, hold, rest, id)).toBe(outcome);
    if (outcome === "held") await client.release(id);
    client.end();
  });
});

describe("bytes that are not a line of the protocol", () => {
  test.each(MALFORMED_BYTES)("$what ends the connection", async ({ afterHello, bytes }) => {
    const client = await (afterHello ? RawClient.open(address) : RawClient.connect(address));
    const text = bytes.includes("{START}") ? Buffer.from(bytes.toString().replace("{START}", client.runId)) : bytes;
    client.write(text);
    await client.waitUntilClosed();
    expect(client.refusal).toBe("PROTOCOL");
    expect(client.lines.join()).not.toContain("not json");
  });
});

test("a hello and a claim, cut off at every byte: only a complete line places anything", async () => {
  const session = randomId();
  const hello = Buffer.from(`{"hello":{"protocol":1,"session":"${session}"}}\n`);
  for (let cutAt = 0; cutAt <= hello.length; cutAt++) {
    const client = await RawClient.connect(address);
    client.write(hello.subarray(0, cutAt));
    client.socket.end();
    await client.waitUntilClosed();
    expect(client.runId !== "").toBe(cutAt === hello.length);
  }
  const frame = (start: string): Buffer => Buffer.from(`["${start}",["claim",1,"${randomId()}",["cut"],1000]]\n`);
  const { length } = frame("12345678");
  for (let cutAt = 0; cutAt < length; cutAt++) {
    const client = await RawClient.open(address);
    client.write(frame(client.runId).subarray(0, cutAt));
    client.socket.end();
    await client.waitUntilClosed();
    expect(server.stats().claims).toBe(1);
  }
});

test("two claims with one call number are both answered, and are separate claims", async () => {
  const client = await RawClient.open(address);
  const [one, two] = [randomId(), randomId()];
  client.send(`["claim",5,"${one}",["one"],1000]`, `["claim",5,"${two}",["two"],1000]`);
  await client.call("ping");
  expect(client.unexpectedLines.map(([kind, n, what]) => [kind, n, (what as unknown[])[0]])).toEqual([
    ["ok", 5, "held"],
    ["ok", 5, "held"],
  ]);
  await client.call("release", [one, two]);
  client.end();
});

test("a client that knows a holder's key and token, but not its id, cannot release the claim; nor can one whose hello has the tag of the session", async () => {
  const client = await RawClient.open(address);
  const [[view] = []] = (await client.call("list", { prefix: "the other's" }, 5)) as unknown as [
    [string, ...unknown[]][],
  ];
  const tag = String(view?.[0]);
  expect(JSON.stringify(view)).not.toContain(othersClaim);
  expect(JSON.stringify(view)).not.toContain(otherClient.session);
  expect(await client.release(randomId())).toBe(false);
  expect(await client.release(`${tag}${"a".repeat(26 - tag.length)}`)).toBe(false);
  client.end();
});

test("a renewal of a released claim answers none", async () => {
  const client = await RawClient.open(address);
  const id = randomId();
  await client.claim(id, "k");
  expect(await client.release(id)).toBe(true);
  expect(await client.call("renew", [id])).toEqual([["none"]]);
  client.end();
});

test("HTTP on the lock port gets one answer that names no lock, and places nothing", async () => {
  for (const method of ["GET / HTTP/1.1", "POST /v1/claims HTTP/1.1"]) {
    const client = await RawClient.connect(address);
    client.write(`${method}\r\nHost: x\r\nContent-Length: 200\r\n\r\n`);
    client.write(`{"hello":{"protocol":1,"session":"${randomId()}"}}\n`);
    await client.waitUntilClosed();
    expect(client.runId).toBe("");
    expect(client.lines[0]).toMatch(/^HTTP\/1\.1 400/);
  }
});

test("every malformed input is in a table, or the list names the test that covers it", () => {
  const rows = [...MALFORMED_KEYS, ...MALFORMED_TERMS, ...MALFORMED_BYTES].map(({ row }) => row);
  const coveredRows = new Set([...rows, ...Object.keys(COVERED_ELSEWHERE).map(Number)]);
  expect(Array.from({ length: 72 }, (_, index) => index + 1).filter((row) => !coveredRows.has(row))).toEqual([]);
  expect(rows.filter((row) => COVERED_ELSEWHERE[row] !== undefined)).toEqual([]);
});

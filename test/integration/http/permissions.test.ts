// Every call of a client, as a frame and over HTTP, with every permission: a call that authorization forgets shows here.

import { expect, test } from "vitest";
import type { Right } from "../../../src/auth/access-control.ts";
import { RIGHTS } from "../../../src/auth/access-control.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import {
  cleanUpAfterEach,
  onCleanup,
  openRequest,
  post,
  request,
  startHttpServer,
} from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const KEY = "k/held";
const owner = testAccount("owner", "k/");
/** Accounts by their only permission on the keys; "elsewhere" has all of them on other keys. */
const accounts = {
  ...(Object.fromEntries(RIGHTS.map((name) => [name, testAccount(name, "k/", [name])])) as Record<
    Right,
    ReturnType<typeof testAccount>
  >),
  elsewhere: testAccount("elsewhere", "other/"),
};
type AccountName = keyof typeof accounts;
const ACCOUNT_NAMES = Object.keys(accounts) as readonly AccountName[];

interface Site {
  readonly url: string;
  /** A connection of this account. */
  connect(name: AccountName): Promise<RawClient>;
  /** What the owner holds: by its id, and by a reference. */
  readonly id: string;
  readonly token: string;
  readonly reference: string;
  readonly waitingReference: string;
  /** Throws unless the owner still has all of it. */
  expectUnharmed(): Promise<void>;
}

async function openSite(): Promise<Site> {
  const access = createTestAccess(owner, ...Object.values(accounts));
  const { url, addresses } = await startHttpServer({ access, listen: "holdfast://127.0.0.1:0" });
  const connect = async (credential: string): Promise<RawClient> => {
    const client = await RawClient.open(parseRawAddress(addresses[0] as string), { credential });
    onCleanup(() => client.end());
    return client;
  };
  const holder = await connect(owner.credential);
  const id = randomId();
  const [, token] = (await holder.claim(id, KEY)) as readonly [string, string];
  const { credential } = owner;
  const held = await post(url, "/v1/claims", { key: "k/http" }, { credential });
  const waiting = await post(url, "/v1/claims", { key: KEY, wait: "1ms" }, { credential });
  const expectUnharmed = async (): Promise<void> => {
    const [answer] = (await holder.call("renew", [id])) as readonly [readonly unknown[]];
    expect(answer.slice(0, 2)).toEqual(["held", token]);
    const body = { reference: held.json.reference };
    expect((await post(url, "/v1/claims/renew", body, { credential })).status).toBe(200);
    const wait = { reference: waiting.json.reference, wait: 0 };
    expect((await post(url, "/v1/claims/wait", wait, { credential })).status).toBe(202);
  };
  const references = { reference: held.json.reference, waitingReference: waiting.json.reference };
  return { url, connect: (name) => connect(accounts[name].credential), id, token, ...references, expectUnharmed };
}

/** The code of the error, or the result. */
const orCode = (result: Promise<unknown>): Promise<unknown> =>
  result.catch((error: Error) => error.message.split(":")[0]);

type Results = Readonly<Partial<Record<AccountName, unknown>>>;
/** A call, its result without the permission, and its result for the accounts that have it. */
type Row<Call> = readonly [name: string, call: Call, without: unknown, withPermission: Results];

const NONE = [["none"]];
/** The keys that were sent are ones that the account may not acquire: that does not depend on the claim. */
const REVOKED = [["none", "revoked"]];
const FRAMES: readonly Row<(site: Site, client: RawClient) => Promise<unknown>>[] = [
  [
    "claim",
    (_, client) => orCode(client.claim(randomId(), "k/new", 30_000, { wait: false }).then(([state]) => state)),
    "FORBIDDEN",
    { acquire: "held" },
  ],
  [
    "claim, with the id of another account",
    ({ id }, client) => orCode(client.claim(id, KEY)),
    "FORBIDDEN",
    { acquire: ["none"] },
  ],
  ["renew", ({ id }, client) => client.call("renew", [id]), NONE, {}],
  ["renew with the claim", ({ id }, client) => client.call("renew", [[id, [KEY], 30_000]]), REVOKED, { acquire: NONE }],
  ["release", ({ id }, client) => client.call("release", [id]), [0], {}],
  ["detach", ({ id }, client) => client.call("detach", [id]), [0], {}],
  [
    "reclaim",
    ({ id, token }, client) =>
      client.call(
        "reclaim",
        [
          [
            [id, [KEY], 30_000],
            ["held", token, 1, 30_000],
          ],
        ],
        true,
      ),
    REVOKED,
    { acquire: NONE },
  ],
  // with a wrong token, so that nothing is revoked
  ["revoke", (_, client) => orCode(client.call("revoke", [[KEY, "1", true, "test"]])), "FORBIDDEN", { revoke: [0] }],
  [
    "list",
    (_, client) => client.call("list", { prefix: "" }, 100).then(([views]) => (views as unknown[]).length),
    0,
    { inspect: 3 },
  ],
  [
    "list of a key",
    (_, client) => client.call("list", { key: KEY }, 100).then(([views]) => (views as unknown[]).length),
    0,
    { inspect: 1 },
  ],
  [
    "history",
    (_, client) => orCode(client.call("history", KEY, 1).then((events) => events.length)),
    "FORBIDDEN",
    { inspect: 1 },
  ],
  [
    "info",
    (_, client) => client.call("info", "k/").then((info) => (info as unknown as { rights: string[] }).rights),
    [],
    Object.fromEntries(RIGHTS.map((name) => [name, [name]])),
  ],
];

test.each(FRAMES)(
  "frame %s: only the permission that it needs allows it, and the claims of others stay",
  async (_, call, without, withPermission) => {
    const site = await openSite();
    for (const name of ACCOUNT_NAMES) {
      const client = await site.connect(name);
      expect([name, await call(site, client)]).toEqual([name, name in withPermission ? withPermission[name] : without]);
      client.end();
    }
    await site.expectUnharmed();
  },
);

test("frame watch: it pushes the events of keys that the account may inspect only", async () => {
  const site = await openSite();
  const lines = new Map<AccountName, string>();
  for (const name of ACCOUNT_NAMES) {
    const client = await site.connect(name);
    client.socket.on("data", (text: string) => lines.set(name, (lines.get(name) ?? "") + text));
    await client.call("watch", "", 0);
  }
  await until(() => lines.get("inspect")?.includes(KEY), {
    within: 5_000,
    what: "the events for the account that may see them",
  });
  expect(ACCOUNT_NAMES.filter((name) => lines.get(name)?.includes("k/"))).toEqual(["inspect"]);
});

type Request = readonly [method: string, path: string, body?: (site: Site) => object];
const REQUESTS: readonly Row<Request>[] = [
  ["claims", ["POST", "/v1/claims", () => ({ key: "k/new", wait: 0 })], "403 FORBIDDEN", { acquire: "201" }],
  [
    "claims/wait",
    ["POST", "/v1/claims/wait", ({ waitingReference }) => ({ reference: waitingReference, wait: 0 })],
    "403 FORBIDDEN",
    { acquire: "409 LOCK_LOST" },
  ],
  [
    "claims/renew",
    ["POST", "/v1/claims/renew", ({ reference }) => ({ reference })],
    "403 FORBIDDEN",
    { acquire: "409 LOCK_LOST" },
  ],
  ["claims/release", ["POST", "/v1/claims/release", ({ reference }) => ({ reference })], "409 LOCK_LOST", {}],
  [
    "claims/release of a waiting claim",
    ["POST", "/v1/claims/release", ({ waitingReference }) => ({ reference: waitingReference })],
    "409 LOCK_LOST",
    {},
  ],
  [
    "locks/revoke",
    ["POST", "/v1/locks/revoke", () => ({ key: KEY, token: "1", reason: "test", now: true })],
    "403 FORBIDDEN",
    { revoke: "409 NOT_HELD" },
  ],
  ["locks", ["GET", "/v1/locks"], "200", {}],
  // of all keys
  ["metrics", ["GET", "/metrics"], "403 FORBIDDEN", {}],
];

test.each(REQUESTS)(
  "HTTP %s: only the permission that it needs allows it, and the claims of others stay",
  async (_, [method, path, createBody], without, withPermission) => {
    const site = await openSite();
    for (const name of ACCOUNT_NAMES) {
      const body = createBody?.(site);
      const { credential } = accounts[name];
      const { status, json, text } = await request(site.url, path, { method, credential, ...(body && { body }) });
      const result = status < 300 ? String(status) : `${status} ${json.code}`;
      expect([name, result]).toEqual([name, name in withPermission ? withPermission[name] : without]);
      if (path === "/v1/locks") expect([name, text.includes(KEY)]).toEqual([name, name === "inspect"]);
    }
    await site.expectUnharmed();
  },
);

test("HTTP events: a stream has the events of keys that the account may inspect only", async () => {
  const site = await openSite();
  const texts = new Map<AccountName, string>();
  for (const name of ACCOUNT_NAMES) {
    const { credential } = accounts[name];
    // an event id of another run of the server: all its events
    const stream = await openRequest(site.url, "/events", { credential, headers: { "last-event-id": "a-1" } });
    onCleanup(() => void stream.destroy());
    stream.setEncoding("utf8").on("data", (text: string) => texts.set(name, (texts.get(name) ?? "") + text));
  }
  await until(() => texts.get("inspect")?.includes(KEY), {
    within: 5_000,
    what: "the events for the account that may see them",
  });
  expect(ACCOUNT_NAMES.filter((name) => texts.get(name)?.includes("k/"))).toEqual(["inspect"]);
});
